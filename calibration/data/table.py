"""Tables from CSV and Parquet files."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from calibration.data.columns import check_names, encode_columns, infer_columns
from calibration.data.dataset import DATASETS, Dataset, DatasetOptions, Part
from calibration.data.fixed import TEST_SHARE, FixedDataset
from calibration.data.labels import class_names_of, encode_labels
from calibration.data.protocol import Share


@DATASETS.register("table")
class Table(DatasetOptions):
    """Rows of a CSV or Parquet file; the target column holds the classes.

    Columns of numbers and booleans are numeric, columns of texts categorical, and so
    are those named in ``categorical``. ``test_path`` is a second file of test rows;
    without it ``test_share`` of the rows is set aside. The dataset is called ``name``,
    or as the file is.
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
        return FixedDataset(
            self.name or self.path.name.partition(".")[0],
            "table",
            part(frame, self.path),
            classes,
            test=test,
            test_share=self.test_share,
            columns=columns,
        )


def read_frame(path: Path, separator: str | None = None) -> pd.DataFrame:
    """Read a CSV (``.csv``, ``.tsv``, ``.txt``, also compressed) or Parquet file.

    The separator is a comma (a tab in ``.tsv``) unless given. Raises ``ValueError``
    naming the file if it is absent, empty, not UTF-8 or not of these formats.
    """
    if not path.is_file():
        raise ValueError(f"{path}: no such file (looked for {path.absolute()})")
    kinds = {suffix.lower() for suffix in path.suffixes}
    try:
        if kinds & {".parquet", ".pq"}:
            frame = pd.read_parquet(path)
        elif kinds & {".csv", ".tsv", ".txt"}:
            default = "\t" if ".tsv" in kinds else ","
            # utf-8-sig also reads files without the mark that spreadsheets put in front.
            frame = _without_index(
                pd.read_csv(path, sep=separator or default, encoding="utf-8-sig", low_memory=False)
            )
        else:
            raise ValueError("not a .csv, .tsv, .txt or .parquet file")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text ({error.reason}); save it as UTF-8") from None
    except pd.errors.ParserError as error:
        found = str(error).strip()
        raise ValueError(f"{path}: {found}; is the option separator right?") from error
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{path}: cannot be read: {error}") from error
    frame.columns = frame.columns.map(str)
    if frame.empty:
        raise ValueError(f"{path}: there are no rows")
    return frame


def _without_index(frame: pd.DataFrame) -> pd.DataFrame:
    # A nameless first column 0, 1, 2, … is pandas' own row number. As an input it would
    # give the labels away wherever rows are sorted by class.
    first = str(frame.columns[0])
    if first == "Unnamed: 0" and list(frame[first]) == list(range(len(frame))):
        return frame.drop(columns=first)
    return frame
