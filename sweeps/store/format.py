"""The format of a store. A store of another format is refused and left untouched.

Every sealed file states the store's format. A store has a single format, because it is checked
before the first access: the first file that states it is enough. That costs a remote store one
listing and one read, and needs no file of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sweeps.store.codec import STORE_FORMAT, DamagedError, OtherFormatError, unseal
from sweeps.store.files import Files, StoreError
from sweeps.store.layout import RESERVED_NAMES, SWEEP_STATE


def check_format(files: Files) -> None:
    """Raise ``StoreError`` if another version of calsweep made the store."""
    for path in _telling(files):
        content = files.read(path)
        if content is None:
            continue
        try:
            unseal(content)
        except DamagedError:  # reported when the file is needed
            continue
        except OtherFormatError as error:
            raise store_refusal(files.root, error) from error
        return


def store_refusal(place: str, error: OtherFormatError) -> StoreError:
    """The error for a store of another format, or for a file in one."""
    remedy = "run the sweep into another store with --store (this one is left untouched)"
    return refusal(place, error.found, STORE_FORMAT, remedy)


def refusal(place: str | Path, found: int, readable: int, remedy: str) -> StoreError:
    """The error for anything written by another version of calsweep."""
    age, upgrade = ("an older", "") if found < readable else ("a newer", "upgrade this one, or ")
    return StoreError(
        f"{place} was made by {age} version of calsweep (format {found}; this one reads "
        f"{readable}): {upgrade}{remedy}"
    )


def _telling(files: Files) -> Iterator[str]:
    """The files that may state the store's format, those that take the fewest requests first."""
    sweeps = files.directories("")
    yield from (f"{name}/{SWEEP_STATE}" for name in sweeps if name not in RESERVED_NAMES)
    if "records" in sweeps:
        yield from (f"records/{key}/record.json" for key in files.directories("records"))
