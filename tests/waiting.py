"""Waiting in tests: for facts, with limits that a busy machine does not reach."""

from __future__ import annotations

import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import psutil

LIMIT = 600.0
"""No test waits longer for one thing. Nothing is decided by it but that a test hangs."""
PERIOD = 0.05
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Opens addresses of this machine, whatever proxy there is for others."""
T = TypeVar("T")


def wait_for(
    condition: Callable[[], T],
    process: subprocess.Popen[Any] | None = None,
    limit: float = LIMIT,
    log: Path | None = None,
) -> T:
    """Wait until something holds, and return it.

    Raises ``AssertionError`` as soon as ``process`` has ended without it, with what it printed
    (into ``log``, if that is where its output goes), and after ``limit`` seconds.
    """
    deadline = time.monotonic() + limit
    while True:
        ended = process is not None and process.poll() is not None
        begun = time.thread_time()
        if found := condition():  # after the look at the process: it may have been its last act
            return found
        if ended:
            raise AssertionError(_last_words(process, log))
        if time.monotonic() > deadline:
            said = f": {log.read_text()[-3000:]}" if log else ""
            raise AssertionError(f"waited {limit:.0f} s in vain{said}")
        # Whoever asks a server or a database takes turns with what is waited for.
        time.sleep(max(PERIOD, 3 * (time.thread_time() - begun)))


def output_of(process: subprocess.Popen[str], limit: float = LIMIT) -> tuple[str, str]:
    """Wait for the end of a process: what it printed, and its complaints."""
    try:
        return process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"it runs for ever: {process.communicate()}") from None


def wait_until_gone(processes: Iterable[psutil.Process], limit: float = LIMIT) -> None:
    """Wait until none of the processes is left."""
    _, alive = psutil.wait_procs(processes, timeout=limit)
    assert not alive


def answers(url: str) -> bool:
    """Whether a server answers there, and well."""
    try:
        # Whoever has accepted a connection but does not come to its answer is asked anew.
        with DIRECT.open(url, timeout=30) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def _last_words(process: subprocess.Popen[Any] | None, log: Path | None) -> str:
    assert process is not None
    said = log.read_text()[-3000:] if log else process.communicate()
    return f"the process has ended with {process.returncode}: {said}"
