"""Run as a script: keeps a command running for as long as standard input stays open.

When the process that started it ends, even by SIGKILL, the pipe closes, and the command and its
children, a separate process group, are ended. It imports only the standard library, so that it
starts at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

_SECONDS = 5.0
"""Seconds that a command has to terminate before it is killed."""


def _end_when_alone(process: subprocess.Popen[bytes]) -> None:
    while os.read(0, 1024):
        pass
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)


def main(command: list[str]) -> int:
    """Run a command; returns its exit code, or minus the signal that ended it."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    keeper = threading.Thread(target=_end_when_alone, args=(process,), daemon=True)
    keeper.start()
    code = process.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
