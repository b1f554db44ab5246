"""Text files, compressed or not: unpacked while they are read, and never assumed to be small.

A few megabytes may unpack to more than any memory, and a compressed file does not say how much.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from calibration.memory import IN_MEMORY_BYTES, TooLargeError, fits, readable, room

_PACKERS = {".gz", ".bz2", ".zip", ".xz", ".zst", ".tar"}
_PIECE = 2**20
LONGEST_LINE = IN_MEMORY_BYTES
"""In bytes: a parser holds a whole line in memory, however few lines are requested."""


@contextmanager
def opened_text(path: Path, *, by_rows: bool = False) -> Iterator[io.BufferedReader[_Bounded]]:
    """A text file for pandas to read: its bytes, unpacked.

    With ``by_rows`` only some rows are requested at a time, and the caller then sets
    ``raw.taken`` to 0. Reading raises ``TooLargeError`` at a line too long for a table, and at
    rows that do not fit into memory: after an unclosed quotation mark, all the rest is one row.
    """
    # As pandas itself opens it: for an archive, its only member.
    from pandas.io.common import get_handle  # type: ignore[import-not-found]

    with get_handle(path, "rb", compression="infer", is_text=False) as opened:
        bounded = _Bounded(opened.handle, path, by_rows=by_rows)
        yield io.BufferedReader(bounded, _PIECE)


def text_bytes(path: Path) -> int:
    """The bytes of a file's text; compressed text is unpacked as far as would fit into memory."""
    if not _is_packed(path):
        return path.stat().st_size
    size = 0
    with opened_text(path) as text:
        while fits(size) and (piece := text.read(_PIECE)):
            size += len(piece)
    return size


def _is_packed(path: Path) -> bool:
    return bool({suffix.lower() for suffix in path.suffixes} & _PACKERS)


class _Bounded(io.RawIOBase):
    def __init__(self, file: IO[Any], path: Path, *, by_rows: bool) -> None:
        super().__init__()
        self._file, self._path = file, path
        self._line = self.taken = 0
        self._most = max(IN_MEMORY_BYTES, room()) if by_rows else None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._file.read(len(buffer))
        buffer[: len(piece)] = piece
        end = max(piece.rfind(b"\n"), piece.rfind(b"\r"))
        self._line = self._line + len(piece) if end < 0 else len(piece) - end - 1
        self.taken += len(piece)
        if self._line > LONGEST_LINE:
            has = "it unpacks to" if _is_packed(self._path) else "it has"
            raise TooLargeError(
                f"{self._path}: {has} a line of more than {readable(LONGEST_LINE)}; end every row "
                "with a newline"
            )
        if self._most is not None and self.taken > self._most:
            raise TooLargeError(
                f"{self._path}: a few rows take more than {readable(self._most)}, as much as "
                "memory can hold; is a quotation mark not closed?"
            )
        return len(piece)
