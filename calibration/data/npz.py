"""The only reader of NPZ files: nothing is unpickled, and no file is trusted.

An NPZ file is a zip archive of arrays, as written by ``numpy.savez``. A damaged or malicious one
may announce arrays of any size, truthfully or not, or hold something else. The archive's directory
and the header of every requested array are compared before memory is allocated for the content.
"""

from __future__ import annotations

import contextlib
import math
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from calibration.data.paths import check_file
from calibration.memory import IN_MEMORY_BYTES, TooLargeError, check_fits

_CHUNK = 2**20
CLASS_NAMES = "class_names"
"""The name of an array of class names."""
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Those that NumPy writes; zip's others cannot be unpacked in pieces."""


class NpzFile:
    """The arrays of an NPZ file by name; only requested arrays are read.

    Raises ``ValueError`` naming the file and what is wrong with it, here and in ``arrays``.
    """

    def __init__(self, path: Path) -> None:
        check_file(path)
        self.path = path
        # NumPy itself takes anything else for a pickle and advises unpickling it.
        with _complaints(path), _opened(path) as archive:
            self.names = tuple(name.removesuffix(".npy") for name in archive.namelist())

    def arrays(self, wanted: Iterable[str]) -> dict[str, NDArray[Any]]:
        """The arrays of these names; strings stored as bytes are decoded."""
        with _complaints(self.path), _opened(self.path) as archive:
            members = {name: self._member(archive, name) for name in dict.fromkeys(wanted)}
            headers = {name: _header(archive, info, name) for name, info in members.items()}
            mapped = {n for n, info in members.items() if _can_be_mapped(info, headers[n])}
            check_fits(
                sum(header.size for name, header in headers.items() if name not in mapped),
                f"{self.path}: its arrays unpack to",
            )
            return {
                name: _map(archive, info, headers[name], self.path)
                if name in mapped
                else _as_texts(_read(archive, info, headers[name], name), name)
                for name, info in members.items()
            }

    def columns(
        self, rows: int, without: Iterable[str]
    ) -> tuple[dict[str, NDArray[Any]], list[str]]:
        """The other arrays with one value for each of ``rows``, and the unreadable ones."""
        found: dict[str, NDArray[Any]] = {}
        unreadable = []
        for name in self.names:
            if name in without:
                continue
            try:
                with _complaints(self.path), _opened(self.path) as archive:
                    shape = _header(archive, self._member(archive, name), name).shape
                if shape == (rows,):
                    found |= self.arrays([name])
            except ValueError:
                unreadable.append(name)
        return found, unreadable

    def _member(self, archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
        found = [info for info in archive.infolist() if info.filename in (name, f"{name}.npy")]
        if len(found) != 1:
            raise ValueError(f"it holds {len(found)} arrays called {name!r}")
        return found[0]


@dataclass(frozen=True)
class _Header:
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    length: int

    @property
    def size(self) -> int:
        """The bytes of the array, without the header."""
        return math.prod(self.shape) * self.dtype.itemsize


@contextlib.contextmanager
def _complaints(path: Path) -> Iterator[None]:
    wrong = f"{path}: not a readable NPZ file of plain arrays"
    try:
        yield
    except TooLargeError:
        raise
    except MemoryError:
        raise ValueError(f"{path}: there is not enough memory to read it") from None
    except ValueError as error:
        raise ValueError(f"{wrong}: {error}") from None
    except Exception as error:  # zipfile, zlib and NumPy's parser may raise anything
        message = str(error) or "it is damaged"
        raise ValueError(f"{wrong}: {type(error).__name__}: {message}") from error


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise ValueError(f"{error}; numpy.savez(file, name=array, …) writes one") from None


def _header(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> _Header:
    if info.compress_type not in COMPRESSIONS:
        raise ValueError(f"{name!r} is compressed in a way that NumPy does not use")
    with archive.open(info) as member:
        try:
            version = npy.read_magic(member)
        except ValueError:
            raise ValueError(f"{name!r} is not an array") from None
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
        if read is None:
            raise ValueError(f"{name!r} has the format {version}; keep numbers and texts")
        try:
            shape, fortran, dtype = read(member)
        except Exception:  # the header is parsed as Python: any error is possible
            raise ValueError(f"the header of {name!r} is damaged") from None
        length = member.tell()
    if dtype.hasobject:
        raise ValueError(f"{name!r} holds objects, which are not loaded; keep numbers and texts")
    header = _Header(shape, fortran, dtype, length)
    sensible = dtype.itemsize > 0 and all(size >= 0 for size in shape)
    if not sensible or header.size + length != info.file_size:
        raise ValueError(
            f"{name!r} is announced with the shape {_short(shape)} of {_short(dtype)}, which does "
            f"not fit its {info.file_size} bytes"
        )
    return header


def _read(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, header: _Header, name: str
) -> NDArray[Any]:
    """The array, unpacked in pieces into as much memory as its header announces."""
    content = np.empty(header.size, np.uint8)
    rest = content.data
    with archive.open(info) as member:
        member.read(header.length)
        while piece := member.read(_CHUNK):  # the checksum is compared at its end
            rest[: len(piece)] = piece
            rest = rest[len(piece) :]
    if len(rest):
        raise ValueError(f"{name!r} ends {len(rest)} bytes too early")
    return content.view(header.dtype).reshape(header.shape, order="F" if header.fortran else "C")


def _can_be_mapped(info: zipfile.ZipInfo, header: _Header) -> bool:
    """Whether a large array is stored uncompressed in the archive."""
    plain = not header.fortran and header.dtype.kind in "biuf" and header.dtype.isnative
    return plain and header.size > IN_MEMORY_BYTES and info.compress_type == zipfile.ZIP_STORED


def _map(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, header: _Header, path: Path
) -> NDArray[Any]:
    """The array mapped in place in the archive; its checksum is compared nevertheless."""
    with archive.open(info) as member:
        while member.read(_CHUNK):
            pass
    with path.open("rb") as file:
        file.seek(info.header_offset)
        local = file.read(30)  # ends with the lengths of the name and the extra field
    before = 30 + int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little")
    start = info.header_offset + before + header.length
    return np.memmap(path, header.dtype, "r", start, header.shape)


def _as_texts(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Strings, decoded and checked for invalid characters; other arrays unchanged."""
    if array.dtype.kind not in "SU":
        return array
    try:
        texts = np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array
        letters = texts.ravel().astype(texts.dtype.newbyteorder("=")).view(np.uint32)
        wrong = (letters > 0x10FFFF) | ((letters >= 0xD800) & (letters <= 0xDFFF))
    except UnicodeDecodeError as error:
        raise ValueError(f"the texts of {name!r} are not UTF-8: {error.reason}") from None
    if wrong.any():
        raise ValueError(f"the texts of {name!r} are damaged")
    return texts


def class_names_in(array: NDArray[Any], path: Path) -> tuple[str, ...]:
    """The names of the classes 0…K−1. Raises ``ValueError`` unless there is one for each."""
    if array.ndim != 1 or array.dtype.kind not in "Ubiuf":
        raise ValueError(
            f"{path}: class_names must be a text for each class, found the shape {array.shape} of "
            f"{_short(array.dtype)}"
        )
    return tuple(str(name) for name in array)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
