"""Files named by a user."""

from __future__ import annotations

from pathlib import Path


def check_file(path: Path) -> None:
    """Raise ``ValueError`` if ``path`` is not a file that can be read."""
    try:
        found = path.is_file()
    except (OSError, ValueError) as error:  # a name that is too long, a directory without access
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"{path}: cannot be read: {reason}") from None
    if not found:
        raise ValueError(f"{path}: no such file (looked for {path.absolute()})")
