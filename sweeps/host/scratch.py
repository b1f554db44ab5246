"""Temporary directories that are cleaned up even after a killed process."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from calibration.leftovers import remove_leftovers, temporary_name
from sweeps.host import reaper, workspace

_PREFIX = f"{workspace.WORKSPACE_PREFIX}scratch-"
"""With this prefix a driver, too, removes those of dead processes; see ``workspace``."""


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """A temporary directory, removed at the end of the context.

    It is in the driver's workspace if there is one; otherwise in the system's temporary
    directory, from which those of killed processes are removed as well.
    """
    place = Path(os.environ.get(reaper.MARK, ""))
    if not place.is_absolute() or not place.is_dir():
        place = Path(tempfile.gettempdir())
        remove_leftovers(place, _PREFIX)
    with directory_in(place, _PREFIX) as directory:
        yield directory


@contextmanager
def directory_in(place: Path, prefix: str) -> Iterator[Path]:
    """A new directory in ``place`` for the owner only, removed at the end of the context."""
    directory = place / temporary_name(prefix)
    directory.mkdir(mode=0o700)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
