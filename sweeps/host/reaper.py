"""Ends what a driver has started for itself, and removes its directory, when the driver is gone.

Run as a script it reads the directory's name and waits until standard input closes: whoever
started it has ended then, in whatever way, even by SIGKILL. It imports nothing but the
standard library, so as to start at once and to stay small.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

MARK = "CALSWEEP_WORKSPACE"
"""Set for every process that a driver starts, and inherited by theirs: the driver's directory."""
_SECONDS = 20.0
PAUSE = 0.1


def processes(directory: Path) -> list[int]:
    """The processes, other than this one, that were started for the owner of a directory.

    Its name, which nobody can guess, stands in their environment, or they have files open in
    it: some of Ray's write their title over their environment. A process that has ended and
    waits to be reaped does not count. Where there is no /proc, as on macOS, none are found;
    Ray's own clean-up has to do.
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


def reap(directory: Path, seconds: float = _SECONDS) -> None:
    """Kill the processes of a directory and remove it; what resists that long is left."""
    deadline = time.monotonic() + seconds
    end_processes(directory, seconds)
    while directory.exists() and time.monotonic() < deadline:
        shutil.rmtree(directory, ignore_errors=True)
        time.sleep(0 if not directory.exists() else PAUSE)


def end_processes(directory: Path, seconds: float = _SECONDS) -> None:
    """Kill the processes of a directory, and wait until they are gone."""
    deadline = time.monotonic() + seconds
    while (alive := processes(directory)) and time.monotonic() < deadline:
        for process in alive:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(PAUSE)


def main() -> None:
    """Wait for the end of whoever holds the other end of standard input, then clean up."""
    output = sys.stdin.buffer.read()
    # One that was killed before it had told all of the name has started nothing yet.
    if output.endswith(b"\n"):
        reap(Path(os.fsdecode(output[:-1])))


if __name__ == "__main__":
    main()
