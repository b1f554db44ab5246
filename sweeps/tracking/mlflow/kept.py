"""Run as a script: keeps a command running for as long as standard input stays open.

Whoever started it may end in any way, even by SIGKILL: the pipe then closes, and the
command and all that it has started, a process group of their own, are ended. It imports
nothing but the standard library, so as to start at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

_SECONDS = 5.0
"""What a command that was asked to end is given before it is killed."""


def _end_when_alone(process: subprocess.Popen[bytes]) -> None:
    while os.read(0, 1024):
        pass
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)


def main(command: list[str]) -> int:
    """Run a command; its exit code, or minus the signal that ended it."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    keeper = threading.Thread(target=_end_when_alone, args=(process,), daemon=True)
    keeper.start()
    code = process.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
