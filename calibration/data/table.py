"""Tables from CSV and Parquet files."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from calibration.data.columns import Column, encode_columns, holds_texts, infer_columns
from calibration.data.dataset import DATASETS, Dataset, DatasetOptions, Part
from calibration.data.fixed import TEST_SHARE, FixedDataset
from calibration.data.frames import check_names, read_frame
from calibration.data.labels import class_names_of, encode_labels
from calibration.data.protocol import Share
from calibration.data.roles import Roles, check_fold_alone, check_roles, read_roles
from calibration.data.text_inputs import padded


@DATASETS.register("table")
class Table(DatasetOptions):
    """Rows of a CSV or Parquet file; the target column holds the classes.

    Columns of numbers and booleans are numeric, columns of texts categorical, and so
    are those named in ``categorical``. ``test_path`` is a second file of test rows;
    without it ``test_share`` of the rows is set aside. The dataset is called ``name``,
    or as the file is. ``separator`` is found in the header unless given: see ``read_frame``.

    Columns can say which rows belong together; they are no inputs then. ``group``: no group
    (a patient, a customer) is in two parts, and intervals and tests are about new groups.
    ``time``: numbers or ISO dates; training comes before validation, and that before the
    test rows, equal times together. ``fold``: the part of each row, ``train``,
    ``validation``, ``test`` or ``meta`` (for methods that learn on held-out data; without
    any, a share of the training rows); it may be used with ``group``. With ``time`` and
    ``fold`` the parts are the same for every seed. ``weight``: how much each row counts (0 or
    more, of any scale), in training and in all metrics and calibrators that can follow it.

    ``text`` names a column of texts that is the only input, for a model ``hf:NAME``.
    """

    path: Path
    target: str
    name: str | None = None
    test_path: Path | None = None
    test_share: Share = TEST_SHARE
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    text: str | None = None
    separator: str | None = None
    group: str | None = None
    time: str | None = None
    fold: str | None = None
    weight: str | None = None

    def load(self) -> Dataset:
        """Read the file or files. Raises ``ValueError`` naming file and column."""
        frame = read_frame(self.path, self.separator)
        origin = str(self.path)
        check_names([self.target], frame, origin, "target")
        check_names([*self.drop, *self.categorical], frame, origin, "input")
        roles = Roles(self.group, self.time, self.fold, self.weight)
        check_names(roles.named.values(), frame, origin, "named")
        used = {self.target: "the target"} | dict.fromkeys(self.categorical, "an input")
        check_roles(roles, origin, used)
        check_fold_alone(self, origin)
        aside = {self.target, *self.drop, *roles.named.values()}
        names = [name for name in frame.columns if name not in aside]
        if not names:
            raise ValueError(
                f"{origin}: no column is left beside the target {self.target!r} and those dropped "
                "or used otherwise"
            )
        if self.text is None:
            columns = infer_columns(frame, names, self.categorical, origin)
        else:
            columns = (self._text_column(frame, names, origin),)
        classes = class_names_of(frame[self.target], f"{origin}, column {self.target!r}")

        read = [(str(self.path), frame)]
        if self.test_path is not None:
            read.append((str(self.test_path), read_frame(self.test_path, self.separator)))
            check_names([self.target], read[1][1], read[1][0], "target")
            check_names(roles.named.values(), read[1][1], read[1][0], "named")
        described = read_roles(
            [{role: rows[name] for role, name in roles.named.items()} for _, rows in read],
            [path for path, _ in read],
        )
        parts = [
            Part(
                encode_columns(rows, columns, path),
                encode_labels(rows[self.target], classes, f"{path}, column {self.target!r}"),
                **fields,
            )
            for (path, rows), fields in zip(read, described, strict=True)
        ]
        if self.text is not None:
            longest = max(part.inputs.shape[1] for part in parts)
            parts = [part._replace(inputs=padded(part.inputs, longest)) for part in parts]
        called = self.name or self.path.name.partition(".")[0]
        try:
            return FixedDataset(
                called,
                "table" if self.text is None else "text",
                parts[0],
                classes,
                test=parts[1] if len(parts) == 2 else None,
                test_share=self.test_share,
                columns=columns,
            )
        except ValueError as error:  # about the classes: too many, or too few rows of them
            found = str(error).removeprefix(f"{called}: ")
            raise ValueError(f"{origin}, column {self.target!r}: {found}") from None

    def _text_column(self, frame: pd.DataFrame, names: list[str], origin: str) -> Column:
        assert self.text is not None, "asked only then"
        check_names([self.text], frame[names], origin, "text")
        if self.categorical:
            raise ValueError(
                f"{origin}: the text {self.text!r} is the only input; leave 'categorical' out"
            )
        if not holds_texts(frame[self.text].dropna()):
            raise ValueError(f"{origin}: column {self.text!r} does not hold texts")
        return Column(self.text, "text")
