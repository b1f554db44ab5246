"""Tables from CSV and Parquet files."""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from calibration.data.columns import check_names, encode_columns, infer_columns
from calibration.data.dataset import DATASETS, Dataset, DatasetOptions, Part
from calibration.data.files import check_file
from calibration.data.fixed import TEST_SHARE, FixedDataset
from calibration.data.labels import class_names_of, encode_labels
from calibration.data.protocol import Share


@DATASETS.register("table")
class Table(DatasetOptions):
    """Rows of a CSV or Parquet file; the target column holds the classes.

    Columns of numbers and booleans are numeric, columns of texts categorical, and so
    are those named in ``categorical``. ``test_path`` is a second file of test rows;
    without it ``test_share`` of the rows is set aside. The dataset is called ``name``,
    or as the file is. ``separator`` is found in the header unless given: see ``read_frame``.
    """

    path: Path
    target: str
    name: str | None = None
    test_path: Path | None = None
    test_share: Share = TEST_SHARE
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    separator: str | None = None

    def load(self) -> Dataset:
        """Read the file or files. Raises ``ValueError`` naming file and column."""
        frame = read_frame(self.path, self.separator)
        origin = str(self.path)
        check_names([self.target], frame, origin, "target")
        check_names([*self.drop, *self.categorical], frame, origin, "input")
        aside = {self.target, *self.drop}
        names = [name for name in frame.columns if name not in aside]
        if not names:
            raise ValueError(
                f"{origin}: no column is left beside the target {self.target!r} and those dropped"
            )
        columns = infer_columns(frame, names, self.categorical, origin)
        classes = class_names_of(frame[self.target], f"{origin}, column {self.target!r}")

        def part(rows: pd.DataFrame, path: Path) -> Part:
            check_names([self.target], rows, str(path), "target")
            labels = encode_labels(rows[self.target], classes, f"{path}, column {self.target!r}")
            return Part(encode_columns(rows, columns, str(path)), labels)

        test = None
        if self.test_path is not None:
            test = part(read_frame(self.test_path, self.separator), self.test_path)
        called = self.name or self.path.name.partition(".")[0]
        rows = part(frame, self.path)
        try:
            return FixedDataset(
                called,
                "table",
                rows,
                classes,
                test=test,
                test_share=self.test_share,
                columns=columns,
            )
        except ValueError as error:  # about the classes: too many, or too few rows of them
            found = str(error).removeprefix(f"{called}: ")
            raise ValueError(f"{origin}, column {self.target!r}: {found}") from None


def read_frame(path: Path, separator: str | None = None) -> pd.DataFrame:
    """Read a CSV (``.csv``, ``.tsv``, ``.txt``, also compressed) or Parquet file.

    Unless given, the separator is a tab in ``.tsv``, and else a comma; or a semicolon or tab
    if the first line has that, but no comma (what stands in quotes does not count). Raises
    ``ValueError`` naming the file if it is absent, empty, not UTF-8 or not of these formats.
    """
    check_file(path)
    kinds = {suffix.lower() for suffix in path.suffixes}
    try:
        if kinds & {".parquet", ".pq"}:
            frame = pd.read_parquet(path)
        elif kinds & {".csv", ".tsv", ".txt"}:
            found = separator or _separator(path)
            # utf-8-sig also reads files without the mark that spreadsheets put in front.
            frame = _without_index(
                pd.read_csv(path, sep=found, encoding="utf-8-sig", low_memory=False)
            )
        else:
            raise ValueError("not a .csv, .tsv, .txt or .parquet file")
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
    frame.columns = frame.columns.map(str)
    if frame.empty:
        raise ValueError(f"{path}: there are no rows")
    return frame


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def repeated_names(path: Path) -> dict[str, int]:
    """The names that several columns of a CSV file have, and how many; pandas renames these.

    For files that ``read_frame`` could read.
    """
    if {suffix.lower() for suffix in path.suffixes} & {".parquet", ".pq"}:
        return {}
    counts = Counter(_first_row(path, _separator(path)))
    return {name: count for name, count in counts.items() if name and count > 1}


def _separator(path: Path) -> str:
    if ".tsv" in (suffix.lower() for suffix in path.suffixes):
        return "\t"
    # No file has this control character: the line comes whole, whatever the compression.
    line = "".join(_first_row(path, "\x1f", csv.QUOTE_NONE))
    outside = re.sub(r'"[^"]*("|$)', "", line)
    other = max(";\t", key=outside.count)
    return other if other in outside and "," not in outside else ","


def _first_row(path: Path, separator: str, quoting: Literal[0, 3] = csv.QUOTE_MINIMAL) -> list[str]:
    row = pd.read_csv(
        path,
        sep=separator,
        quoting=quoting,
        header=None,
        nrows=1,
        dtype=str,
        keep_default_na=False,
        encoding="utf-8-sig",
    )
    return [str(value) for value in row.iloc[0]]


def _without_index(frame: pd.DataFrame) -> pd.DataFrame:
    # A nameless first column 0, 1, 2, … is pandas' own row number. As an input it would
    # give the labels away wherever rows are sorted by class.
    first = str(frame.columns[0])
    if first == "Unnamed: 0" and np.array_equal(frame[first], np.arange(len(frame))):
        return frame.drop(columns=first)
    return frame
