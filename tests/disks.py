"""File systems that are small enough to be filled, or read-only; needs root."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """A tmpfs of ``size`` (as mount writes it) at ``place``."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def fill(place: Path) -> Path:
    """Take all of a disk's room; the file to be removed when there shall be some again."""
    ballast = place / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
    return ballast


@contextmanager
def read_only(directory: Path) -> Iterator[None]:
    """Nothing that is opened from now on can be written: the directory is mounted over itself."""
    # Made elsewhere first: a mount with a file open for writing cannot be made read-only.
    unwritable = directory.with_name("unwritable")
    unwritable.mkdir()
    subprocess.run(["mount", "--bind", directory, unwritable], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", unwritable], check=True)
        subprocess.run(["mount", "--bind", unwritable, directory], check=True)
    finally:
        subprocess.run(["umount", "-l", unwritable], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", directory], check=True)
