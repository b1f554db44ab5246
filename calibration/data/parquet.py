"""The memory that the values of a Parquet file need, computed before they are read.

A text that occurs in many rows is stored once, in a dictionary: a file of kilobytes may hold
terabytes, and its footer gives only the number of values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from calibration.memory import IN_MEMORY_BYTES, fits

_VALUE_BYTES = 8


def parquet_bytes(path: Path) -> int:
    """The memory of a file read whole: 8 bytes per value, plus the bytes of its texts.

    Counting stops at what would fit into memory.
    """
    about = pq.read_metadata(path)
    columns = [
        about.row_group(group).column(place)
        for group in range(about.num_row_groups)
        for place in range(about.num_columns)
    ]
    size: int = _VALUE_BYTES * sum(column.num_values for column in columns)
    with _with_dictionaries(path, about) as file:
        for group, column in _text_columns(about):
            stored: int = column.total_uncompressed_size
            if not fits(size + stored):
                return size + stored
            size += sum(total for total, _ in _texts(file, group, column, column.num_values))
    return size


def rows_at_once(path: Path, names: Sequence[str], most: int) -> int:
    """How many rows of these columns to read at a time: ``most``, or fewer if texts are long.

    A text in a dictionary counts as long as the longest there; texts outside dictionaries are
    all stored in the file, and count with their mean length.
    """
    about = pq.read_metadata(path)
    longest: dict[str, int] = {}
    with _with_dictionaries(path, about) as file:
        for group, column in _text_columns(about):
            name = column.path_in_schema
            if any(f"{name}.".startswith(f"{wanted}.") for wanted in names):
                mean = column.total_uncompressed_size // max(1, column.num_values)
                # The first row is read with the whole dictionary.
                each = (longest for _, longest in _texts(file, group, column, 1))
                found = max(each, default=0) if _is_incremental(column) else next(each, 0)
                longest[name] = max(longest.get(name, 0), mean, found)
    return max(1, min(most, IN_MEMORY_BYTES // max(1, sum(longest.values()))))


def _texts(file: Any, group: int, column: Any, rows: int) -> Iterator[tuple[int, int]]:
    """For every ``rows`` rows, the bytes of all their texts, and of the longest or a mean one."""
    if _is_incremental(column):
        # A text may repeat the previous one, and is no longer than everything stored.
        rows = IN_MEMORY_BYTES // max(1, column.total_uncompressed_size)
    name = column.path_in_schema
    for batch in file.iter_batches(max(1, rows), row_groups=[group], columns=[name]):
        texts = batch.column(0)
        while pa.types.is_nested(texts.type):
            flat = texts.flatten()
            texts = flat[0] if isinstance(flat, list) else flat
        if pa.types.is_dictionary(texts.type):
            lengths = pc.binary_length(texts.dictionary)
            total = pc.sum(pc.take(lengths, texts.indices)).as_py() or 0
            yield total, pc.max(lengths).as_py() or 0
        else:
            yield texts.nbytes, texts.nbytes // max(1, len(texts))


def _with_dictionaries(path: Path, about: Any) -> Any:
    """The file, opened to be read without unpacking dictionaries."""
    found = list(_text_columns(about))
    unreadable = {column.path_in_schema for _, column in found if _is_incremental(column)}
    names = {column.path_in_schema for _, column in found} - unreadable
    return pq.ParquetFile(
        path, metadata=about, read_dictionary=sorted(names), buffer_size=2**20, pre_buffer=False
    )


def _is_incremental(column: Any) -> bool:
    """Whether texts are delta-encoded, for which pyarrow makes no dictionaries."""
    return any(encoding.startswith("DELTA") for encoding in column.encodings)


def _text_columns(about: Any) -> Iterator[tuple[int, Any]]:
    """The text columns, with the number of their row group."""
    for group in range(about.num_row_groups):
        for place in range(about.num_columns):
            column = about.row_group(group).column(place)
            if column.physical_type == "BYTE_ARRAY":
                yield group, column
