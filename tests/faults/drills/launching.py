"""A sweep's command under a drill: its words go to files, its end is waited for, not for ever.

Pipes would stay open for as long as any orphan of a killed driver lives.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.faults.kit import Scene

DONE_SECONDS = 600.0
"""Within these an undisturbed run has ended, on any machine."""


class Launch:
    """``calsweep run`` in a scene, as a group of processes of its own."""

    def __init__(self, scene: Scene, *arguments: str, command: str = "run", **extra: str) -> None:
        self.scene = scene
        self.began = time.time()
        self.outputs = [_next_file(scene.directory, kind) for kind in ("out", "err")]
        out, err = (path.open("w") for path in self.outputs)
        with out, err:
            self.process = subprocess.Popen(
                scene.words(*arguments, command=command),
                cwd=scene.directory,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=scene.environment() | extra,
                start_new_session=True,
            )
        scene.trace.pids.append(self.process.pid)

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def said(self) -> str:
        """Standard output and standard error so far."""
        return "\n".join(path.read_text(errors="replace") for path in self.outputs)

    def end(self, seconds: float = DONE_SECONDS) -> int | None:
        """The exit code; None if it has not ended in time, and then it is killed."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill_group()
            return None

    def kill_group(self) -> None:
        """SIGKILL to the driver and all that stayed in its group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def run_to_end(scene: Scene, *arguments: str, command: str = "run", **extra: str) -> Launch:
    """Run a command that nobody disturbs. Raises ``AssertionError`` if it does not end well."""
    launch = Launch(scene, *arguments, command=command, **extra)
    code = launch.end()
    assert code == 0, f"{command} ended with {code}: {launch.said[-2000:]}"
    return launch


def until(scene: Scene, come: Callable[[Scene], object], **extra: str) -> Launch:
    """The command, started and come so far. Raises ``AssertionError`` if it ends before."""
    launch = Launch(scene, **extra)
    deadline = time.monotonic() + DONE_SECONDS
    while not come(scene):
        assert launch.running, f"ended before: {launch.said[-2000:]}"
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
    return launch


def _next_file(directory: Path, kind: str) -> Path:
    number = len(list(directory.glob(f"*.{kind}"))) + 1
    return directory / f"{number}.{kind}"
