"""CSV and Parquet files, read as they are."""

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
"""What pandas calls a first column without a name."""
_CELL_BYTES = 8
_SAMPLED_ROWS = 200
_BEFORE_3_1 = tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1)
EXACT_NUMBERS: dict[str, Any] = {"float_precision": "round_trip"} if _BEFORE_3_1 else {}
"""Asks ``pandas.read_csv`` for numbers to the bit: from 3.1 on the default, and asking warns."""


def read_frame(path: Path) -> pd.DataFrame:
    """Read a CSV (``.csv``, ``.tsv``, ``.txt``, also compressed) or Parquet file.

    The separator is a tab in ``.tsv``, and else a comma; or a semicolon or tab if the first line
    has that, but no comma (what stands in quotes does not count). Raises
    ``ValueError`` naming the file if it is absent, empty, not UTF-8, not of these formats or too
    large for the memory that is available.
    """
    size = bytes_in_memory(path, None)
    with reading(path):
        rows = "{} rows of {} columns".format(*_shape(path)) if is_parquet(path) else "rows"
        check_fits(size, f"{path}: its {rows} take")
    return read_whole(path, None)


def read_whole(path: Path, separator: str | None) -> pd.DataFrame:
    """``read_frame`` of a file that is known to fit into memory; ``separator`` None: found."""
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
    """Errors that name the file, for whatever a file that was written by others may hold."""
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
    except Exception as error:  # what unpacks or parses a damaged file raises whatever it meets
        kind = type(error).__name__
        raise ValueError(f"{path}: cannot be read: {kind}: {_line(error)}") from error


def csv_options(path: Path, separator: str | None) -> dict[str, Any]:
    """How pandas is asked to read a file of text."""
    # utf-8-sig also reads files without the mark that spreadsheets put in front.
    return {
        "sep": separator or _separator(path),
        "encoding": "utf-8-sig",
        "low_memory": False,
        **EXACT_NUMBERS,
    }


def is_parquet(path: Path) -> bool:
    """Whether a file is read as Parquet, by its name."""
    return bool(_kinds(path) & {".parquet", ".pq"})


def _kinds(path: Path) -> set[str]:
    return {suffix.lower() for suffix in path.suffixes}


def bytes_in_memory(path: Path, separator: str | None) -> int:
    """What a table that is read whole takes: 8 bytes for each value, and its texts.

    Of a CSV file it is an estimate by its first rows. What is packed is unpacked to be counted, as
    far as it would fit.
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
    """Rows and columns, by what the footer of a Parquet file says."""
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    about = pq.read_metadata(path)
    return about.num_rows, about.num_columns


def read_texts(path: Path, frame: pd.DataFrame, names: list[str]) -> dict[str, Any]:
    """Columns of a file that was read as ``frame``, as they stand in it.

    Those of a CSV are texts: an id 007 stays what it is.
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
    """The names that several columns of a CSV file have, and how many; pandas renames these.

    For files that ``read_frame`` could read.
    """
    if is_parquet(path):
        return {}
    counts = Counter(_first_row(path, _separator(path)))
    return {name: count for name, count in counts.items() if name and count > 1}


def _separator(path: Path) -> str:
    if ".tsv" in _kinds(path):
        return "\t"
    # No file has this control character: the line comes whole, whatever the compression.
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

    A nameless first column 0, 1, 2, … is pandas' own row number. As an input it would
    give the labels away wherever rows are sorted by class.
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
