"""What is made once for all processes of pytest-xdist."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def shared_directory(
    factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]
) -> Path:
    """A directory of this test session, to be looked at: whoever comes first makes it."""
    base = factory.getbasetemp()
    home = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    directory, made = home / name, home / f"{name}.made"
    with (home / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            directory.mkdir()
            make(directory)
            made.touch()
    return directory
