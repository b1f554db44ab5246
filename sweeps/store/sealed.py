"""Files that detect damage and misplacement; damaged or misplaced ones are set aside.

Every file names its path below the sweep's directory or below that of all trials, so that a copy
in another trial's or study's place is not accepted. Setting aside means moving the file to
``ROOT/damaged/OWNER-N`` with the reason, after a warning and without deleting anything; from
then on the file counts as missing.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from sweeps.store.codec import (
    DamagedError,
    OtherFormatError,
    decode_checkpoint,
    encode_checkpoint,
    seal,
    unseal,
)
from sweeps.store.files import Files, StoreError
from sweeps.store.format import store_refusal

PLACE = "place"
_TRIES = 3

T = TypeVar("T")
log = logging.getLogger("calsweep")


def place(path: str) -> str:
    """The part of its path that a file stores: that below the sweep's directory or ``records``."""
    return path.partition("/")[2]


def sealed(path: str, values: Mapping[str, Any]) -> bytes:
    """The content of a sealed file that names its place."""
    return seal({**values, PLACE: place(path)})


def check_place(path: str, found: object) -> None:
    """Raise ``DamagedError`` unless the place that a file names is correct."""
    if found != place(path):
        raise DamagedError(f"it is a copy of {found!r}" if found else "it does not name its owner")


class SealedFiles:
    """Reads and creates files with checksums. Every method raises ``StoreError``."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def read(self, path: str, owner: str, decode: Callable[[bytes], T]) -> T | None:
        """A decoded file; None if it is absent or ``decode`` finds it damaged."""
        content = self._files.read(path)
        if content is None:
            return None
        try:
            return decode(content)
        except DamagedError as error:
            self.set_aside(owner, path, content, error, [path])
            return None

    def write(self, path: str, values: Mapping[str, Any]) -> None:
        """Write or replace a sealed file that names its place."""
        self._files.write(path, sealed(path, values))

    def read_checkpoint(self, path: str, owner: str) -> dict[str, Any] | None:
        """The values written by ``write_checkpoint``, or None; see ``read``."""
        return self.read(path, owner, lambda content: self.checkpoint(path, content))

    def checkpoint(self, path: str, content: bytes) -> dict[str, Any]:
        """The values given to ``write_checkpoint``. Raises ``DamagedError``."""
        return self._opened(path, content, decode_checkpoint)

    def write_checkpoint(self, path: str, values: Mapping[str, Any]) -> None:
        """Write or replace a file of tensors and plain values that names its place."""
        self._files.write(path, encode_checkpoint({**values, PLACE: place(path)}))

    def read_all(
        self, directory: str, owner: str, decode: Callable[[dict[str, Any]], T]
    ) -> dict[str, T]:
        """The content of a directory's undamaged sealed files, by name without ``.json``.

        ``decode`` raises ``DamagedError`` for impossible values.
        """
        found: dict[str, T] = {}
        for file, content in self._files.read_all(directory).items():
            path = f"{directory}/{file}"
            try:
                if file.endswith(".json"):
                    found[file.removesuffix(".json")] = decode(self.content(path, content))
            except DamagedError as error:
                self.set_aside(owner, path, content, error, [path])
        return found

    def content(self, path: str, content: bytes) -> dict[str, Any]:
        """The values given to ``write``. Raises ``DamagedError``."""
        values = self.unseal(path, content)
        return {name: v for name, v in values.items() if name not in ("checksum", "format")}

    def unseal(self, path: str, content: bytes) -> dict[str, Any]:
        """``codec.unseal``, if the place is right; another version's file is a ``StoreError``."""
        return self._opened(path, content, unseal)

    def _opened(
        self, path: str, content: bytes, decode: Callable[[bytes], dict[str, Any]]
    ) -> dict[str, Any]:
        try:
            values = decode(content)
        except OtherFormatError as error:
            raise store_refusal(f"{self._files.root}/{path}", error) from error
        check_place(path, values.pop(PLACE, None))
        return values

    def reject(self, path: str, owner: str, reason: str) -> None:
        """Set aside an intact file with impossible content."""
        content = self._files.read(path)
        if content is not None:
            self.set_aside(owner, path, content, DamagedError(reason), [path])

    def create(self, path: str, content: bytes, there: Callable[[], object]) -> bool:
        """Create a file unless ``there`` reads one: a damaged one does not count."""
        for _ in range(_TRIES):
            if self._files.create(path, content):
                return True
            if there() is not None:  # otherwise it was damaged and has been set aside
                return False
        raise StoreError(f"{self._files.root}/{path} is damaged and cannot be moved; move it away")

    def set_aside(
        self, owner: str, path: str, seen: bytes | None, error: DamagedError, paths: list[str]
    ) -> None:
        """Set aside damaged files, unless another process has replaced them."""
        if self._files.read(path) != seen:
            return
        about = f"{self._files.root}/{path} is damaged: {error}"
        try:
            place = self.move_aside("damaged", owner, f"{path}: {error}", paths)
            log.warning("%s; set aside in %s", about, place)
        except StoreError as failed:
            # A reader can do without the file; a writer will meet the cause again.
            log.warning("%s; it could not be moved: %s", about, failed)

    def move_aside(self, directory: str, owner: str, reason: str, paths: list[str]) -> str:
        """Move paths into a new directory, together with the reason."""
        note = f"{reason}\n{uuid.uuid4().hex}\n".encode()
        number = 1
        while not self._files.create(f"{directory}/{owner}-{number}/reason.txt", note):
            number += 1
        for path in paths:
            self._files.move(path, f"{directory}/{owner}-{number}/{path.rpartition('/')[2]}")
        return f"{self._files.root}/{directory}/{owner}-{number}"
