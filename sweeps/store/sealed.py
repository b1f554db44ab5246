"""Files that tell whether they are damaged or misplaced; those that are get set aside.

What is written here names its place below the sweep's directory or below that of all trials, so
that a copy in another trial's or study's place is not believed. Set aside means moved to
``ROOT/damaged/OWNER-N`` with the reason, never deleted, after a warning; from then on the file
is not there.
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
    """What a file knows of its path: all below the sweep's directory, or below ``records``."""
    return path.partition("/")[2]


def sealed(path: str, values: Mapping[str, Any]) -> bytes:
    """The content of a sealed file that knows its place."""
    return seal({**values, PLACE: place(path)})


def check_place(path: str, found: object) -> None:
    """Raise ``DamagedError`` unless what a file says of its place is true."""
    if found != place(path):
        raise DamagedError(f"it is a copy of {found!r}" if found else "it does not say whose it is")


class SealedFiles:
    """Reads and creates files with checksums. Every method raises ``StoreError``."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def read(self, path: str, owner: str, decode: Callable[[bytes], T]) -> T | None:
        """A decoded file; None if it is absent or damaged (``decode`` said so)."""
        content = self._files.read(path)
        if content is None:
            return None
        try:
            return decode(content)
        except DamagedError as error:
            self.set_aside(owner, path, content, error, [path])
            return None

    def write(self, path: str, values: Mapping[str, Any]) -> None:
        """Write or replace a sealed file that knows its place."""
        self._files.write(path, sealed(path, values))

    def read_checkpoint(self, path: str, owner: str) -> dict[str, Any] | None:
        """What ``write_checkpoint`` wrote, or None; see ``read``."""
        return self.read(path, owner, lambda content: self.checkpoint(path, content))

    def checkpoint(self, path: str, content: bytes) -> dict[str, Any]:
        """What ``write_checkpoint`` was given. Raises ``DamagedError``."""
        return self._opened(path, content, decode_checkpoint)

    def write_checkpoint(self, path: str, values: Mapping[str, Any]) -> None:
        """Write or replace tensors and plain values that know their place."""
        self._files.write(path, encode_checkpoint({**values, PLACE: place(path)}))

    def read_all(
        self, directory: str, owner: str, decode: Callable[[dict[str, Any]], T]
    ) -> dict[str, T]:
        """What the undamaged sealed files of a directory hold, by name without ``.json``.

        ``decode`` raises ``DamagedError`` for what cannot be.
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
        """What ``write`` was given. Raises ``DamagedError``."""
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
        """Set aside a whole file that says what cannot be."""
        content = self._files.read(path)
        if content is not None:
            self.set_aside(owner, path, content, DamagedError(reason), [path])

    def create(self, path: str, content: bytes, there: Callable[[], object]) -> bool:
        """Create a file unless ``there`` reads one: a damaged one does not count."""
        for _ in range(_TRIES):
            if self._files.create(path, content):
                return True
            if there() is not None:  # else it was damaged, and is out of the way now
                return False
        raise StoreError(f"{self._files.root}/{path}: damaged, and it stays; move it away")

    def set_aside(
        self, owner: str, path: str, seen: bytes | None, error: DamagedError, paths: list[str]
    ) -> None:
        """Move what is damaged out of the way, unless another process has replaced it."""
        if self._files.read(path) != seen:
            return
        about = f"{self._files.root}/{path} is damaged: {error}"
        try:
            place = self.move_aside("damaged", owner, f"{path}: {error}", paths)
            log.warning("%s; set aside in %s", about, place)
        except StoreError as failed:
            # Whoever only reads can do without it; whoever writes meets the cause again.
            log.warning("%s; it stays there: %s", about, failed)

    def move_aside(self, directory: str, owner: str, reason: str, paths: list[str]) -> str:
        """Move paths into a directory that nobody else uses and that names the reason."""
        note = f"{reason}\n{uuid.uuid4().hex}\n".encode()
        number = 1
        while not self._files.create(f"{directory}/{owner}-{number}/reason.txt", note):
            number += 1
        for path in paths:
            self._files.move(path, f"{directory}/{owner}-{number}/{path.rpartition('/')[2]}")
        return f"{self._files.root}/{directory}/{owner}-{number}"
