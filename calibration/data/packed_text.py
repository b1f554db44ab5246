"""Text that may be packed: unpacked as it is read, and never believed to be small.

A few megabytes may unpack to more than any memory, and nothing in a packed file tells how much.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from calibration.memory import IN_MEMORY_BYTES, TooLargeError, fits, readable

_PACKERS = {".gz", ".bz2", ".zip", ".xz", ".zst", ".tar"}
_PIECE = 2**20
LONGEST_LINE = IN_MEMORY_BYTES
"""Bytes: a parser holds a line as one, however few of them it is asked for."""


@contextmanager
def opened_text(path: Path) -> Iterator[Path | IO[bytes]]:
    """What pandas reads a file of text from: the file itself, or what it unpacks to.

    Reading raises ``TooLargeError`` at a line of packed text that is none of a table.
    """
    if not _is_packed(path):
        yield path
        return
    # As pandas itself opens it: of an archive, the only member.
    from pandas.io.common import get_handle  # type: ignore[import-not-found]

    with get_handle(path, "rb", compression="infer", is_text=False) as opened:
        yield io.BufferedReader(_Unpacked(opened.handle, path), _PIECE)


def text_bytes(path: Path) -> int:
    """The bytes of a file's text; packed text is unpacked as far as would fit into memory."""
    with opened_text(path) as text:
        if isinstance(text, Path):
            return text.stat().st_size
        size = 0
        while fits(size) and (piece := text.read(_PIECE)):
            size += len(piece)
        return size


def _is_packed(path: Path) -> bool:
    return bool({suffix.lower() for suffix in path.suffixes} & _PACKERS)


class _Unpacked(io.RawIOBase):
    def __init__(self, file: IO[Any], path: Path) -> None:
        super().__init__()
        self._file, self._path = file, path
        self._line = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._file.read(len(buffer))
        buffer[: len(piece)] = piece
        end = max(piece.rfind(b"\n"), piece.rfind(b"\r"))
        self._line = self._line + len(piece) if end < 0 else len(piece) - end - 1
        if self._line > LONGEST_LINE:
            raise TooLargeError(
                f"{self._path}: it unpacks to a line of more than {readable(LONGEST_LINE)}"
            )
        return len(piece)
