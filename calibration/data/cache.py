"""A cache of what is derived from files once and reused by later reads.

A cache entry is a directory named by a hash of its sources: the files' names, sizes and times, and
how they are read. It is written to a temporary directory and renamed into place, so that one of
several processes succeeds and the others use its result. What a killed process left unfinished is
removed by the next writer. Entries can be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from calibration.data.files import DataFileError
from calibration.leftovers import remove_leftovers, temporary_name

Content = TypeVar("Content")
_DRAFT = ".draft-"


def cache_directory() -> Path:
    """The directory of all entries: $CALSWEEP_CACHE, else the user's cache directory."""
    own = os.environ.get("CALSWEEP_CACHE")
    usual = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(own) if own else Path(usual) / "calsweep"


def file_identity(paths: Iterable[Path], root: Path, remedy: str) -> list[list[object]]:
    """Names, sizes and times of files. Raises ``DataFileError`` if one is missing."""
    found: list[list[object]] = []
    for path in paths:
        try:
            state = path.stat()
        except FileNotFoundError:
            raise DataFileError(f"{path}: no such file; {remedy}") from None
        except OSError as error:
            raise DataFileError(f"{path}: {error.strerror}; {remedy}") from None
        found.append([str(path.relative_to(root)), state.st_size, state.st_mtime_ns])
    return found


def made_once(
    kind: str,
    identity: object,
    *,
    read: Callable[[Path], Content | None],
    write: Callable[[Path], None],
) -> Content:
    """What ``read`` returns for the entry of ``identity``, filled by ``write`` if necessary.

    ``kind`` is a plural noun for what is cached. ``identity`` is JSON-serialisable and changes
    with the content; ``read`` returns None for an absent or damaged entry. Raises
    ``DataFileError`` if the cache cannot be written, and whatever ``write`` raises.
    """
    written = json.dumps(identity, sort_keys=True)
    place = cache_directory() / kind / hashlib.sha256(written.encode()).hexdigest()[:32]
    found = read(place)
    if found is None:
        _fill(place, kind, read, write)
        found = read(place)
        if found is None:
            raise DataFileError(f"{place}: the cache was changed while it was written; try again")
    return found


def _fill(
    place: Path,
    kind: str,
    read: Callable[[Path], object | None],
    write: Callable[[Path], None],
) -> None:
    draft: Path | None = None
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(place.parent, _DRAFT)
        draft = place.parent / temporary_name(_DRAFT)
        draft.mkdir(mode=0o700)
        write(draft)
        draft.chmod(0o755)
        if place.exists():  # damaged, or another process was faster
            if read(place) is not None:
                return
            shutil.rmtree(place, ignore_errors=True)
        try:
            draft.rename(place)
        except OSError:
            if read(place) is None:
                raise
    except OSError as error:
        raise DataFileError(
            f"{place.parent}: the cache of {kind} cannot be written: {error.strerror or error}; "
            "set CALSWEEP_CACHE to a directory with room"
        ) from None
    finally:
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)
