"""The script by which Ray starts a worker of a local sweep: it asks the template for a fork.

The raylet runs it in place of Ray's ``setup_worker.py``. It imports only what it needs, so that it
ends at once. Without a template it does what Ray's script does.
"""

from __future__ import annotations

import json
import os
import socket
import sys

SOCKET = "CALSWEEP_TEMPLATE"
"""The environment variable with the template's socket."""
ANSWER = b"forking"
_PATIENCE = 120.0
"""Seconds. The template needs a few for its imports; on a busy machine, ten times as many."""
_FOR_SETUP = ("--serialized-runtime-env-context", "--language")


def main() -> None:
    """Ask the template for a worker, or start one as Ray does."""
    arguments = [word for word in sys.argv[1:] if not word.startswith(_FOR_SETUP)]
    if not _is_forked(arguments):
        os.execv(sys.executable, [sys.executable, *arguments])


def _is_forked(arguments: list[str]) -> bool:
    """Whether the template has taken over."""
    directory = os.getcwd()  # noqa: PTH109  (pathlib is not imported here)
    request = {"arguments": arguments, "environment": dict(os.environ), "directory": directory}
    try:
        with socket.socket(socket.AF_UNIX) as template:
            template.settimeout(_PATIENCE)
            template.connect(os.environ[SOCKET])
            template.sendall(json.dumps(request).encode())
            template.shutdown(socket.SHUT_WR)
            return template.recv(len(ANSWER)) == ANSWER
    except (KeyError, OSError):  # no template, it has ended, or it takes too long
        return False


if __name__ == "__main__":
    main()
