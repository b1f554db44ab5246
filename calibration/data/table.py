"""Tables from CSV and Parquet files."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from calibration.data.columns import encode_columns, infer_columns
from calibration.data.dataset import DATASETS, Dataset, DatasetOptions, Part
from calibration.data.fixed import TEST_SHARE, FixedDataset
from calibration.data.frames import check_names, read_frame
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
