"""Reading CSV and Parquet files unchanged."""

from __future__ import annotations

import csv
import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from calibration.data.packed_text import opened_text, text_bytes
from calibration.data.parquet import parquet_bytes
from calibration.data.paths import check_file
from calibration.memory import TooLargeError, check_fits

ROW_NUMBERS = "Unnamed: 0"
"""The name that pandas gives to an unnamed first column."""
_CELL_BYTES = 8
_SAMPLED_ROWS = 200
_BEFORE_3_1 = tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1)
EXACT_NUMBERS: dict[str, Any] = {"float_precision": "round_trip"} if _BEFORE_3_1 else {}
"""Makes ``pandas.read_csv`` parse numbers exactly: the default since 3.1, which warns if asked."""


def read_frame(path: Path) -> pd.DataFrame:
    """Read a CSV (``.csv``, ``.tsv``, ``.txt``, also compressed) or Parquet file.

    The separator is a tab in ``.tsv``, otherwise a comma; or a semicolon or tab if the first
    line contains one and no comma (quoted text does not count). Raises ``ValueError`` naming
    the file if it is absent, empty, not UTF-8, in another format or too large for the
    available memory.
    """
    size = bytes_in_memory(path, None)
    with reading(path):
        rows = "{} rows of {} columns".format(*_shape(path)) if is_parquet(path) else "rows"
        check_fits(size, f"{path}: its {rows} take")
    return read_whole(path, None)


def read_whole(path: Path, separator: str | None) -> pd.DataFrame:
    """``read_frame`` for a file known to fit into memory; ``separator`` None means detect it."""
    with reading(path):
        if is_parquet(path):
            frame = pd.read_parquet(path)
        else:
            with opened_text(path) as text:
                frame = pd.read_csv(text, **csv_options(path, separator))
            if numbers_rows(frame, 0):
                frame = frame.drop(columns=ROW_NUMBERS)
    frame.columns = frame.columns.map(str)
    if frame.empty:
        raise ValueError(f"{path}: there are no rows")
    return frame


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn whatever an unknown file's content may raise into errors that name the file."""
    check_file(path)
    try:
        if not is_parquet(path) and not _kinds(path) & {".csv", ".tsv", ".txt"}:
            raise ValueError("not a .csv, .tsv, .txt or .parquet file")
        yield
    except TooLargeError as error:
        raise TooLargeError(
            f"{error}; leave columns out, or write numbers as arrays into an NPY file, which stays "
            "on the disk"
        ) from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text ({error.reason}); save it as UTF-8") from None
    except pd.errors.ParserError as error:
        raise ValueError(f"{path}: {_line(error)}; is the option separator right?") from error
    except MemoryError:
        raise ValueError(f"{path}: there is not enough memory to read it") from None
    except (ValueError, OSError) as error:
        raise ValueError(f"{path}: cannot be read: {_line(error)}") from error
    except Exception as error:  # unpackers and parsers raise anything on a damaged file
        kind = type(error).__name__
        raise ValueError(f"{path}: cannot be read: {kind}: {_line(error)}") from error


def csv_options(path: Path, separator: str | None) -> dict[str, Any]:
    """The options with which pandas reads a text file."""
    # utf-8-sig also reads files without the byte-order mark that spreadsheets write.
    return {
        "sep": separator or _separator(path),
        "encoding": "utf-8-sig",
        "low_memory": False,
        **EXACT_NUMBERS,
    }


def is_parquet(path: Path) -> bool:
    """Whether a file is read as Parquet, judging by its name."""
    return bool(_kinds(path) & {".parquet", ".pq"})


def _kinds(path: Path) -> set[str]:
    return {suffix.lower() for suffix in path.suffixes}


def bytes_in_memory(path: Path, separator: str | None) -> int:
    """The memory of a table read whole: 8 bytes per value, plus its texts.

    For a CSV file it is estimated from the first rows. Compressed data is unpacked to be counted,
    but only as much as would fit into memory.
    """
    with reading(path):
        if is_parquet(path):
            return parquet_bytes(path)
        size = text_bytes(path)
        as_texts = csv_options(path, separator) | {"dtype": str, "keep_default_na": False}
        with opened_text(path, by_rows=True) as text:
            first = pd.read_csv(text, **as_texts, nrows=_SAMPLED_ROWS)
        sampled = len(first.to_csv(index=False, header=False).encode())
        return size + int(_CELL_BYTES * first.size * size / max(1, sampled))


def _shape(path: Path) -> tuple[int, int]:
    """Rows and columns according to the footer of a Parquet file."""
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    about = pq.read_metadata(path)
    return about.num_rows, about.num_columns


def read_texts(path: Path, frame: pd.DataFrame, names: list[str]) -> dict[str, Any]:
    """Columns of a file that was read as ``frame``, as written in the file.

    Those of a CSV file are strings: an id 007 stays 007.
    """
    if is_parquet(path) or not names:
        return {name: frame[name].array for name in names}
    with opened_text(path) as text:
        texts = pd.read_csv(
            text,
            sep=_separator(path),
            usecols=names,
            dtype=str,
            keep_default_na=False,
            encoding="utf-8-sig",
        )
    return {name: texts[name].to_numpy(dtype=object) for name in names}


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def repeated_names(path: Path) -> dict[str, int]:
    """Column names that occur more than once in a CSV file, with counts; pandas renames these.

    For files that ``read_frame`` could read.
    """
    if is_parquet(path):
        return {}
    counts = Counter(_first_row(path, _separator(path)))
    return {name: count for name, count in counts.items() if name and count > 1}


def _separator(path: Path) -> str:
    if ".tsv" in _kinds(path):
        return "\t"
    # No file contains this control character, so the line is read whole, compressed or not.
    line = "".join(_first_row(path, "\x1f", csv.QUOTE_NONE))
    outside = re.sub(r'"[^"]*("|$)', "", line)
    other = max(";\t", key=outside.count)
    return other if other in outside and "," not in outside else ","


def _first_row(path: Path, separator: str, quoting: Literal[0, 3] = csv.QUOTE_MINIMAL) -> list[str]:
    with opened_text(path, by_rows=True) as text:
        row = pd.read_csv(
            text,
            sep=separator,
            quoting=quoting,
            header=None,
            nrows=1,
            dtype=str,
            keep_default_na=False,
            encoding="utf-8-sig",
        )
    return [str(value) for value in row.iloc[0]]


def numbers_rows(frame: pd.DataFrame, first: int) -> bool:
    """Whether the first column only numbers the rows, from ``first`` on.

    An unnamed first column 0, 1, 2, … is pandas' own row index. As an input it would
    give the labels away where rows are sorted by class.
    """
    rows = np.arange(first, first + len(frame))
    return frame.columns[0] == ROW_NUMBERS and np.array_equal(frame[ROW_NUMBERS], rows)


def check_names(names: Iterable[str], frame: pd.DataFrame, origin: str, role: str) -> None:
    """Raise ``ValueError`` if one of ``names`` is not a column of ``frame``."""
    there = [str(name) for name in frame.columns]
    for name in names:
        if name not in there:
            near = difflib.get_close_matches(name, there, n=1, cutoff=0.6)
            shown = ", ".join(there[:20]) + (", …" if len(there) > 20 else "")
            remedy = f"did you mean {near[0]!r}?" if near else f"columns: {shown}"
            raise ValueError(f"{origin}: no {role} column {name!r}; {remedy}")
