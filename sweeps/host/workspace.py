"""A driver's temporary directory: nothing in it, and no process started for it, outlives it.

Ray keeps its sockets and logs there, Tune its state. A clean end removes it; after any other
end a small process that waits for it does. Should that one be killed too, the next driver
removes what it finds of the dead.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sweeps.errors import UserError
from sweeps.host import reaper
from sweeps.host.environment import variables
from sweeps.host.leftovers import is_leftover, temporary_name

WORKSPACE_PREFIX = "csw-"
_LONGEST = 41
"""Bytes: Ray and ``own_ray`` add up to 66 for sockets, whose paths may have 107."""


class WorkspaceError(UserError):
    """There is no place for temporary files."""

    exit_code = 1


@contextmanager
def workspace() -> Iterator[Path]:
    """A directory for this process and those that it starts. Raises ``WorkspaceError``."""
    place = _place()
    for path in _mine(place):
        if is_leftover(path):
            reaper.reap(path)
    directory = place / temporary_name(WORKSPACE_PREFIX)
    try:
        directory.mkdir(mode=0o700)
    except OSError as error:
        raise WorkspaceError(
            f"cannot make a temporary directory in {place}: {error.strerror}; make room there"
        ) from error
    with _watched(directory):
        try:
            yield directory
        finally:
            reaper.reap(directory)


@contextmanager
def _watched(directory: Path) -> Iterator[None]:
    """With the process that cleans up should this one not come to it."""
    waiting = subprocess.Popen(
        [sys.executable, "-I", "-S", str(Path(reaper.__file__))],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C in the terminal is not for it
        cwd="/",
    )
    assert waiting.stdin is not None
    waiting.stdin.write(os.fsencode(directory) + b"\n")
    waiting.stdin.flush()
    try:
        with variables({reaper.MARK: str(directory)}):
            yield
    finally:
        waiting.kill()  # it would take this process, which may have files open there, for a child
        waiting.communicate()


def _place() -> Path:
    """The system's temporary directory, or another one if that has too long a name."""
    usual = Path(tempfile.gettempdir())
    size = len(os.fsencode(temporary_name(f"{os.sep}{WORKSPACE_PREFIX}")))
    for place in (usual, Path("/tmp"), Path("/var/tmp")):
        if len(os.fsencode(place)) + size <= _LONGEST and os.access(place, os.W_OK | os.X_OK):
            return place
    raise WorkspaceError(
        f"{usual}: too long a name for Ray's sockets, and /tmp cannot be written; set TMPDIR to "
        "a directory with a short name"
    )


def _mine(place: Path) -> list[Path]:
    """The directories of this kind and this user in ``place``."""
    with os.scandir(place) as entries:
        named = [
            e
            for e in entries
            if e.name.startswith(WORKSPACE_PREFIX) and e.is_dir(follow_symlinks=False)
        ]
        return [
            Path(entry.path)
            for entry in named
            if entry.stat(follow_symlinks=False).st_uid == os.geteuid()
        ]
