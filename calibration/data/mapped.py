"""Rows that stay in their file until their values are needed.

``MappedRows`` is a tensor whose shape is known and whose rows can be indexed without reading
them: indexing keeps row numbers, not contents. The first operation that needs values reads them,
so everything that works on tensors works on it, and a batch takes the memory of a batch. Rows in
memory that do not fit on a GPU are ``MappedRows`` too, and are sent batch by batch.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_map

from calibration.memory import IN_MEMORY_BYTES
from calibration.prefetch import ahead
from calibration.transfer import pinned, sent

_ROWS = 4096
SHIPPED_BYTES = 2 * 10**9
"""Rows up to this size are sent to other machines with their dataset; larger need a file there."""


@dataclass(frozen=True)
class MappedFile:
    """An array in a file: its offset, shape and type."""

    path: Path
    offset: int
    shape: tuple[int, ...]
    dtype: str

    @classmethod
    def of(cls, array: NDArray[Any]) -> MappedFile | None:
        """The file behind a whole array mapped by NumPy; None for any other array."""
        # A view would report the offset of the whole array.
        whole = isinstance(array, np.memmap) and isinstance(array.base, mmap.mmap)
        if not whole or not array.flags.c_contiguous or not array.dtype.isnative:
            return None
        assert isinstance(array, np.memmap)
        return cls(Path(str(array.filename)), array.offset, array.shape, array.dtype.str)

    def opened(self) -> NDArray[Any]:
        """The array, mapped and read-only."""
        return np.memmap(self.path, np.dtype(self.dtype), "r", self.offset, self.shape)

    @property
    def by_column(self) -> MappedFile:
        """The file that may hold the same table column by column.

        Reading one column of a row-wise file means reading all of it.
        """
        path = self.path.with_name(f"{self.path.name}.columns")
        return MappedFile(path, 0, self.shape[::-1], self.dtype)

    @property
    def is_there(self) -> bool:
        """Whether the file exists on this machine and is long enough."""
        size = math.prod(self.shape) * np.dtype(self.dtype).itemsize
        try:
            return self.path.stat().st_size >= self.offset + size
        except OSError:
            return False


class MappedRows(Tensor):
    """Some rows of a mapped file, in any order, as a tensor of ``dtype``.

    ``file`` is None for rows that are only in memory.
    """

    file: MappedFile | None
    kind: torch.dtype
    content: NDArray[Any]
    rows: NDArray[np.int64]
    shaped: tuple[int, ...]
    target: torch.device

    @staticmethod
    def __new__(
        cls: type[MappedRows],
        file: MappedFile | None,
        dtype: torch.dtype,
        *,
        rows: NDArray[np.int64] | None = None,
        shape: tuple[int, ...] | None = None,
        content: NDArray[Any] | None = None,
        target: torch.device | None = None,
    ) -> MappedRows:
        """``shape`` is that of one row; ``content`` the array, if the file is elsewhere."""
        if content is None:
            assert file is not None, "rows without a file are given"
            content = file.opened()
        taken = np.arange(len(content)) if rows is None else rows
        shaped = content.shape[1:] if shape is None else shape
        made: MappedRows = torch.Tensor._make_wrapper_subclass(
            cls, (len(taken), *shaped), dtype=dtype
        )
        made.file, made.kind, made.rows, made.shaped = file, dtype, taken, shaped
        made.content = content
        made.target = target or torch.device("cpu")
        return made

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _LAZY and isinstance(args[0], MappedRows):
            return _LAZY[func](*args, **kwargs)
        if func in _ABOUT:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        args, kwargs = tree_map(lambda v: v.read() if isinstance(v, cls) else v, (args, kwargs))
        return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        args, kwargs = tree_map(
            lambda v: v.read() if isinstance(v, cls) else v, (args, kwargs or {})
        )
        return func(*args, **kwargs)

    def load(self) -> Tensor:
        """The values in host memory, ready to be sent to the target device."""
        taken = np.take(self.content, self.rows, axis=0)
        values = torch.from_numpy(taken).reshape(len(self.rows), *self.shaped).to(self.kind)
        return pinned(values, self.target)

    def read(self) -> Tensor:
        """The values on the target device."""
        return sent(self.load(), self.target)

    def with_rows(self, rows: NDArray[np.int64]) -> MappedRows:
        """Other rows of the same file."""
        return MappedRows(
            self.file,
            self.kind,
            rows=rows,
            shape=self.shaped,
            content=self.content,
            target=self.target,
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        shipped = None
        if self.content.nbytes <= SHIPPED_BYTES:
            shipped = np.asarray(self.content)
        return _arrived, (self.file, self.kind, self.rows, self.shaped, shipped)


def _arrived(
    file: MappedFile | None,
    dtype: torch.dtype,
    rows: NDArray[np.int64],
    shape: tuple[int, ...],
    shipped: NDArray[Any] | None,
) -> MappedRows:
    """Unpickled rows: from their file if it exists here, else as they were sent."""
    if file is not None and file.is_there:
        return MappedRows(file, dtype, rows=rows, shape=shape)
    if shipped is None:
        raise ValueError(
            f"{file.path if file else 'an array'}: not on this machine, and too large to be sent; "
            "put it where every node can read it (caches of images: set CALSWEEP_CACHE to a shared "
            "directory)"
        )
    return MappedRows(file, dtype, rows=rows, shape=shape, content=shipped)


def mapped_rows(file: MappedFile, dtype: torch.dtype) -> Tensor:
    """The rows of a file: in memory if they are few, else read on demand."""
    rows = MappedRows(file, dtype)
    return rows if rows.content.nbytes > IN_MEMORY_BYTES else rows.read()


def is_mapped(values: Tensor) -> bool:
    """Whether these rows are read batch by batch."""
    return isinstance(values, MappedRows)


def in_memory(values: Tensor) -> Tensor:
    """The same rows, read into memory if they are in a file."""
    return values.read() if isinstance(values, MappedRows) else values


def read_ahead(values: Tensor, batches: Iterable[Tensor]) -> Iterator[Tensor]:
    """The rows of each batch in memory; rows in a file are prefetched while others are used."""
    taken = (values[rows] for rows in batches)
    return _loaded_ahead(taken, values.target) if isinstance(values, MappedRows) else taken


def in_pieces(values: Tensor, size: int) -> Iterator[Tensor]:
    """All rows in order, ``size`` at a time, prefetched if they are in a file."""
    pieces = iter(values.split(size))
    return _loaded_ahead(pieces, values.target) if isinstance(values, MappedRows) else pieces


def _loaded_ahead(pieces: Iterator[Any], target: torch.device) -> Iterator[Tensor]:
    # Threads read and pin; the copy itself is issued here, in the order of the computation.
    return (sent(loaded, target) for loaded in ahead(MappedRows.load, pieces))


def column_blocks(values: Tensor, places: Sequence[int]) -> Iterator[Tensor]:
    """These columns of a table, with all rows: at once, or a few at a time from a file."""
    if not isinstance(values, MappedRows):
        yield values[:, places]
        return
    if values.file is not None and values.file.by_column.is_there:
        content = values.file.by_column.opened()
        for place in places:
            yield torch.from_numpy(np.take(content[place], values.rows))[:, None].to(values.kind)
        return
    width = max(1, IN_MEMORY_BYTES // (len(values.rows) * values.kind.itemsize))
    for start in range(0, len(places), width):
        taken = places[start : start + width]
        block = torch.empty(len(values.rows), len(taken), dtype=values.kind)
        for place, piece in zip(block.split(_ROWS), in_pieces(values, _ROWS), strict=True):
            place.copy_(piece[:, taken])
        yield block


def kept_on(values: Tensor, device: torch.device) -> Tensor:
    """All rows on a device; rows of a file pass through host memory in pieces."""
    if not isinstance(values, MappedRows):
        return values.to(device)
    whole = torch.empty(values.shape, dtype=values.kind, device=device)
    for place, piece in zip(whole.split(_ROWS), in_pieces(values, _ROWS), strict=True):
        place.copy_(piece)
    return whole


def sent_by_batch(values: Tensor, device: torch.device) -> Tensor:
    """The same rows, kept in host memory or in their file until a batch needs them."""
    if not isinstance(values, MappedRows):
        values = MappedRows(None, values.dtype, content=values.numpy())
    return values.to(device)


def _item(values: MappedRows, key: Any) -> Any:
    if isinstance(key, slice):
        return values.with_rows(values.rows[key])
    if isinstance(key, Tensor) and key.dim() == 1 and key.dtype in (torch.int64, torch.bool):
        return values.with_rows(values.rows[key.cpu().numpy()])
    return values.read()[key]


def _split(values: MappedRows, size: Any, dim: int = 0) -> Any:
    if dim != 0 or not isinstance(size, int):
        return values.read().split(size, dim)
    starts = range(0, max(1, len(values.rows)), size)
    return tuple(values.with_rows(values.rows[start : start + size]) for start in starts)


def _to(values: MappedRows, *args: Any, **kwargs: Any) -> Any:
    target = args[0] if args else kwargs.get("device")
    if isinstance(target, str | torch.device) and len(args) <= 1 and kwargs.keys() <= {"device"}:
        moved = values.with_rows(values.rows)
        moved.target = torch.device(target)
        return moved
    return values.read().to(*args, **kwargs)


def _same_content(one: MappedRows, other: MappedRows) -> bool:
    return one.content is other.content or (one.file is not None and one.file == other.file)


def _equal(one: Any, other: Any) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    mapped = isinstance(one, MappedRows) and isinstance(other, MappedRows)
    if mapped and _same_content(one, other) and np.array_equal(one.rows, other.rows):
        return True
    pairs = zip(one.split(_ROWS), other.split(_ROWS), strict=True)
    return all(torch.equal(in_memory(a), in_memory(b)) for a, b in pairs)


_LAZY: dict[Any, Callable[..., Any]] = {
    Tensor.__getitem__: _item,
    Tensor.split: _split,
    torch.split: _split,
    Tensor.to: _to,
    torch.equal: _equal,
    Tensor.device.__get__: lambda values: values.target,
}
"""Operations that do not need to read any rows."""
_ABOUT = {
    Tensor.__len__,
    Tensor.size,
    Tensor.dim,
    Tensor.numel,
    Tensor.element_size,
    Tensor.shape.__get__,  # type: ignore[attr-defined]
    Tensor.dtype.__get__,  # type: ignore[attr-defined]
    Tensor.ndim.__get__,  # type: ignore[attr-defined]
    Tensor.requires_grad.__get__,  # type: ignore[attr-defined]
}
