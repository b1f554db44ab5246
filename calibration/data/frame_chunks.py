"""A table read in chunks of rows, with the same result as reading it whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import pandas as pd
import pyarrow as pa  # type: ignore[import-untyped]

from calibration.data.columns import are_truths, holds_texts
from calibration.data.frames import ROW_NUMBERS, csv_options, is_parquet, numbers_rows, reading
from calibration.data.packed_text import opened_text
from calibration.data.parquet import rows_at_once
from calibration.memory import IN_MEMORY_BYTES, check_fits

CHUNK_BYTES = 32 * 10**6
"""Size of a chunk's values, at 8 bytes each."""
CHUNK_ROWS = 16_384
"""The most rows of a chunk: texts take more than 8 bytes."""

_Kind = Literal["empty", "whole", "number", "truth", "text", "other"]


class Frames(Protocol):
    """A table's rows, in one or several chunks."""

    @property
    def head(self) -> pd.DataFrame:
        """A frame with the table's columns."""
        ...

    def decide(self, names: Sequence[str]) -> None:
        """Determine the types of these columns before chunks of them are read."""
        ...

    def chunks(self, names: Sequence[str]) -> Iterator[pd.DataFrame]:
        """The rows in order, with at least these columns."""
        ...


class WholeFrame:
    """A table in memory: one chunk."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.head = frame

    def decide(self, names: Sequence[str]) -> None:
        """Do nothing: the frame has its types."""

    def chunks(self, names: Sequence[str]) -> Iterator[pd.DataFrame]:
        """The frame."""
        return iter([self.head])


class FrameChunks:
    """The rows of a CSV or Parquet file, in chunks that begin at row 0.

    Raises ``ValueError`` as ``read_frame`` does, here or while chunks are read.
    """

    def __init__(self, path: Path, separator: str | None = None) -> None:
        self.path, self.separator = path, separator
        with reading(path):
            self._all = self._header()
        self._types: dict[str, Any] = {}
        self.names = [str(name) for name in self._all]
        self.rows = max(1, min(CHUNK_ROWS, CHUNK_BYTES // (8 * max(1, len(self.names)))))
        if not is_parquet(path) and self._numbered():
            self.names.remove(ROW_NUMBERS)

    @property
    def head(self) -> pd.DataFrame:
        """The columns, without rows."""
        return pd.DataFrame(columns=self.names)

    def decide(self, names: Sequence[str]) -> None:
        """Determine the types of these columns in a CSV file from all rows.

        Raises ``ValueError`` for integers beyond 64 bits, whose type depends on the other rows.
        """
        if is_parquet(self.path):
            return
        found: dict[str, set[_Kind]] = {name: set() for name in names}
        for chunk in self.chunks(names):
            for name in names:
                found[name].add(_kind(chunk[name]))
        for name, kinds in found.items():
            if "other" in kinds:
                raise ValueError(
                    f"{self.path}: column {name!r} has whole numbers of 2**63 or more; in a table "
                    "that does not fit into memory write them as texts or with a decimal point, or "
                    "drop the column"
                )
            self._types[name] = _type(kinds)

    def chunks(self, names: Sequence[str]) -> Iterator[pd.DataFrame]:
        """These columns, a chunk of rows at a time."""
        with reading(self.path):
            if not is_parquet(self.path):
                given = {name: kind for name, kind in self._types.items() if name in names}
                options = csv_options(self.path, self.separator)
                # By position: pandas makes up names for repeated and nameless columns.
                places = [place for place, name in enumerate(self._all) if name in set(names)]
                with (
                    opened_text(self.path, by_rows=True) as text,
                    pd.read_csv(
                        text, **options, usecols=places, dtype=given, chunksize=self.rows
                    ) as chunks,
                ):
                    for chunk in chunks:
                        text.raw.taken = 0
                        yield chunk
                return
            import pyarrow.parquet as pq  # type: ignore[import-untyped]

            rows = rows_at_once(self.path, names, self.rows)
            with pq.ParquetFile(self.path) as file:
                for batch in file.iter_batches(rows, columns=list(names)):
                    frame = pa.Table.from_batches([batch]).to_pandas()
                    frame.columns = frame.columns.map(str)
                    yield frame

    def _header(self) -> list[str]:
        if not is_parquet(self.path):
            with opened_text(self.path, by_rows=True) as text:
                first = pd.read_csv(text, **csv_options(self.path, self.separator), nrows=1)
            if not isinstance(first.index, pd.RangeIndex):
                raise ValueError("the rows have more fields than the header has names; add them")
            return list(first.columns)
        import pyarrow.parquet as pq

        # An index written by pandas is not a column.
        return list(pq.read_schema(self.path).empty_table().to_pandas().columns)

    def _numbered(self) -> bool:
        """Whether the first column only numbers the rows."""
        row = 0
        if self.names[0] != ROW_NUMBERS:
            return False
        for chunk in self.chunks([ROW_NUMBERS]):
            if not numbers_rows(chunk, row):
                return False
            row += len(chunk)
        return True


def together(chunks: Iterable[pd.DataFrame], what: str) -> pd.DataFrame:
    """All rows. Raises ``TooLargeError``, beginning with ``what``, if they do not fit."""
    found, size = [], 0
    for chunk in chunks:
        found.append(chunk)
        size += int(chunk.memory_usage(deep=True).sum()) if len(found) > 1 else 0
        if size > IN_MEMORY_BYTES:
            check_fits(size, what)
    if not found:
        return pd.DataFrame()
    return found[0] if len(found) == 1 else pd.concat(found, ignore_index=True)


def _kind(series: pd.Series[Any]) -> _Kind:
    """The type that pandas inferred for a chunk of a CSV column."""
    present = series.dropna()
    if present.empty:
        return "empty"
    if series.dtype.kind in "if":
        return "whole" if series.dtype.kind == "i" else "number"
    if series.dtype.kind == "b" or are_truths(present):
        return "truth"
    return "text" if holds_texts(present) else "other"


def _type(kinds: set[_Kind]) -> Any:
    """The type of the column if it were read whole, or one with the same encoding."""
    there = kinds - {"empty"}
    if there == {"truth"}:
        return "boolean"  # with or without missing values
    if kinds == {"whole"}:
        return "int64"
    return "float64" if there <= {"whole", "number"} else str
