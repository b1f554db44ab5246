"""End a driver's own processes and remove its directory when the driver is gone.

Run as a script, it reads the directory's name and waits until standard input closes: the process
that started it has ended then, however it ended, even by SIGKILL. Meanwhile it keeps the directory
from looking abandoned. It imports only the standard library, so that it starts at once and stays
small.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path

MARK = "CALSWEEP_WORKSPACE"
"""Set for every process that a driver starts, and inherited by its children: its directory."""
_SECONDS = 20.0
PAUSE = 0.1
TOUCH_SECONDS = 3600.0
"""Containers that share the directory above it remove what nobody has touched for a day."""


def processes(directory: Path) -> list[int]:
    """The processes, other than this one, that were started for the owner of a directory.

    Its unguessable name is in their environment, or they have files open in it: some of Ray's
    processes overwrite their environment with their title. A zombie does not count. Without
    /proc, as on macOS, none are found, and only Ray's own clean-up applies.
    """
    mark = os.fsencode(directory)
    found = [Path("/proc", name) for name in _listed("/proc") if name.isdecimal()]
    return [int(p.name) for p in found if int(p.name) != os.getpid() and _is_marked(p, mark)]


def _is_marked(process: Path, mark: bytes) -> bool:
    with contextlib.suppress(OSError):  # ended meanwhile, or another user's
        if mark in (process / "environ").read_bytes():
            return True
    for number in _listed(process / "fd"):
        with contextlib.suppress(OSError):
            if os.fsencode(os.readlink(process / "fd" / number)).startswith(mark + b"/"):  # noqa: PTH115
                return True
    return False


def _listed(directory: str | Path) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208
    except OSError:
        return []


def reap(directory: Path) -> None:
    """Kill the processes of a directory and remove it; give up after a while."""
    deadline = time.monotonic() + _SECONDS
    end_processes(directory)
    while directory.exists() and time.monotonic() < deadline:
        shutil.rmtree(directory, ignore_errors=True)
        time.sleep(0 if not directory.exists() else PAUSE)


def end_processes(directory: Path) -> None:
    """Kill the processes of a directory, and wait until they are gone."""
    deadline = time.monotonic() + _SECONDS
    while (alive := processes(directory)) and time.monotonic() < deadline:
        for process in alive:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(PAUSE)


def main() -> None:
    """Wait for the end of the process that holds the other end of standard input, then clean up."""
    output = sys.stdin.buffer.readline()
    # A driver killed before it wrote the whole name has not started anything yet.
    if not output.endswith(b"\n"):
        return
    directory = Path(os.fsdecode(output[:-1]))
    while not select.select([sys.stdin], [], [], TOUCH_SECONDS)[0]:
        with contextlib.suppress(OSError):
            os.utime(directory)
    reap(directory)


if __name__ == "__main__":
    main()
