"""A driver's temporary directory: its content and the driver's processes do not outlive it.

Ray keeps its sockets and logs there, Tune its state. A clean exit removes it; after any other
exit a small watching process does. If that one is killed too, the next driver removes the
leftovers of dead processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from calibration.leftovers import is_leftover, temporary_name
from sweeps.errors import UserError
from sweeps.host import reaper
from sweeps.host.environment import variables

WORKSPACE_PREFIX = "csw-"
_LONGEST = 41
"""Bytes: Ray and ``own_ray`` add up to 66 for sockets, whose paths may have 107."""


class WorkspaceError(UserError):
    """There is no usable directory for temporary files."""

    exit_code = 1


@contextmanager
def workspace() -> Iterator[Path]:
    """A directory for this process and its children. Raises ``WorkspaceError``."""
    place = _place()
    for path in _mine(place):
        if is_leftover(path):
            reaper.reap(path)
    directory = place / temporary_name(WORKSPACE_PREFIX)
    with _watched(directory):
        try:
            _make(directory)
            yield directory
        finally:
            reaper.reap(directory)


def _make(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700)
    except OSError as error:
        raise WorkspaceError(
            f"cannot make a temporary directory in {directory.parent}: {error.strerror}; make room "
            "there"
        ) from error


@contextmanager
def _watched(directory: Path) -> Iterator[None]:
    """Run the process that cleans up if this one cannot."""
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
    """The system's temporary directory, or another one if its name is too long."""
    usual = Path(tempfile.gettempdir())
    size = len(os.fsencode(temporary_name(f"{os.sep}{WORKSPACE_PREFIX}")))
    for place in (usual, Path("/tmp")):
        if len(os.fsencode(place)) + size <= _LONGEST and os.access(place, os.W_OK | os.X_OK):
            return place
    raise WorkspaceError(
        f"{usual}: name too long for Ray's sockets, and /tmp is not writable; set TMPDIR to "
        f"a writable directory with a name of at most {_LONGEST - size} bytes, such as /t"
    )


def _mine(place: Path) -> list[Path]:
    """The directories of this kind and this user in ``place``."""
    found = []
    with os.scandir(place) as entries:
        for entry in entries:
            if not entry.name.startswith(WORKSPACE_PREFIX):
                continue
            with suppress(FileNotFoundError):  # its owner has removed it since
                owner = entry.stat(follow_symlinks=False).st_uid
                if owner == os.geteuid() and entry.is_dir(follow_symlinks=False):
                    found.append(Path(entry.path))
    return found
