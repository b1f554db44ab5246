"""Tables larger than memory, converted once into files that later reads memory-map."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from calibration.data.cache import made_once
from calibration.data.columns import Column
from calibration.data.dataset import Part
from calibration.data.mapped import MappedFile, MappedRows

TABLE_CACHE_VERSION = 1
"""Increase it when conversion gives other values."""
_KNOWN, _ABOUT = "known.npz", "about.json"

Keep = Callable[[int, int, Iterator[Tensor]], Tensor]
"""Takes a part's number, its number of rows, and their raw inputs in chunks; returns them all."""


class TableContent(NamedTuple):
    """A table as numbers: its rows, and the test rows if they have their own file."""

    parts: tuple[Part, ...]
    columns: tuple[Column, ...]
    class_names: tuple[str, ...]


def in_memory_whole(number: int, rows: int, pieces: Iterator[Tensor]) -> Tensor:
    """Keep the inputs of a table that is read in one piece in memory."""
    (whole,) = pieces
    return whole


def converted_table(identity: object, make: Callable[[Keep], TableContent]) -> TableContent:
    """A table whose inputs stay on disk: from the cache, or converted into it by ``make``.

    Labels, groups, times, folds and weights are read into memory.
    """

    def write(draft: Path) -> None:
        content = make(lambda number, rows, ps: _written(draft / _inputs(number), rows, ps))
        known, files = {}, []
        for number, part in enumerate(content.parts):
            assert isinstance(part.inputs, MappedRows), "kept in a file just now"
            assert part.inputs.file is not None
            files.append([part.inputs.file.shape, part.inputs.file.dtype])
            for name in ("labels", *part.described):
                known[f"{name}_{number}"] = getattr(part, name).numpy()
        np.savez(draft / _KNOWN, **known)
        about = {"inputs": files, "columns": content.columns, "classes": content.class_names}
        (draft / _ABOUT).write_text(json.dumps(about))

    return made_once("tables", [TABLE_CACHE_VERSION, identity], read=_read, write=write)


def _inputs(number: int) -> str:
    return f"inputs_{number}.bin"


def _written(path: Path, count: int, pieces: Iterator[Tensor]) -> Tensor:
    """The rows in a file; numbers also column by column, for computing statistics."""
    start = 0
    with ExitStack() as files:
        file = files.enter_context(path.open("wb"))
        for piece in pieces:
            rows = np.ascontiguousarray(piece.numpy())
            mapped = MappedFile(path, 0, (count, *rows.shape[1:]), rows.dtype.str)
            if not start:
                columns = files.enter_context(mapped.by_column.path.open("wb"))
            file.write(rows.data)
            for place, column in enumerate(rows.T if piece.is_floating_point() else ()):
                columns.seek((place * count + start) * column.itemsize)
                columns.write(column.tobytes())
            start += len(rows)
        for written in (file, columns):
            written.flush()
            os.fsync(written.fileno())
    assert start == count, "labels and inputs are read from the same rows"
    return MappedRows(mapped, piece.dtype)


def _read(place: Path) -> TableContent | None:
    try:
        about = json.loads((place / _ABOUT).read_text())
        with np.load(place / _KNOWN, allow_pickle=False) as stored:
            known = {name: torch.from_numpy(stored[name]) for name in stored.files}
        parts = []
        for number, (shape, dtype) in enumerate(about["inputs"]):
            file = MappedFile(place / _inputs(number), 0, tuple(shape), dtype)
            if not file.is_there:
                return None
            fields = {name: known.get(f"{name}_{number}") for name in Part._fields[1:]}
            kind = torch.from_numpy(np.empty(0, dtype)).dtype
            parts.append(Part(MappedRows(file, kind), **fields))  # type: ignore[arg-type]
        columns = (Column(name, kind, tuple(texts)) for name, kind, texts in about["columns"])
        return TableContent(tuple(parts), tuple(columns), tuple(about["classes"]))
    except Exception:  # a damaged entry may raise anything, and is made again
        return None
