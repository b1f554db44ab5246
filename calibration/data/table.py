"""Tables from CSV and Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
from torch import Tensor

from calibration.data.cache import file_identity
from calibration.data.columns import Column, encode_columns, holds_texts, infer_from_chunks
from calibration.data.dataset import DATASETS, Dataset, DatasetOptions, Part
from calibration.data.fixed import TEST_SHARE, FixedDataset
from calibration.data.frame_chunks import FrameChunks, Frames, WholeFrame, together
from calibration.data.frames import bytes_in_memory, check_names, read_whole
from calibration.data.labels import class_names_of, encode_labels
from calibration.data.protocol import Share
from calibration.data.roles import Roles, check_fold_alone, check_roles, read_roles
from calibration.data.table_cache import Keep, TableContent, converted_table, in_memory_whole
from calibration.data.text_inputs import longest_text, padded
from calibration.memory import fits

_NOT_READ = {"path", "test_path", "name", "test_share"}
"""Options that do not affect what is read from a file."""


@DATASETS.register("table")
class Table(DatasetOptions):
    """Rows of a CSV or Parquet file; the target column holds the classes.

    Columns of numbers and booleans are numeric; columns of texts, and those named in
    ``categorical``, are categorical. ``test_path`` is a second file with test rows;
    without it ``test_share`` of the rows is set aside. The dataset's name is ``name``,
    by default that of the file. ``separator`` is detected in the header unless given.

    Columns can say which rows belong together; they are then not inputs. ``group``: no group
    (a patient, a customer) is in two parts, and intervals and tests refer to new groups.
    ``time``: numbers or ISO dates; training rows precede validation rows, and these the
    test rows, with equal times kept together. ``fold``: the part of each row, ``train``,
    ``validation``, ``test`` or ``meta`` (for methods that learn on held-out data; without
    any, a share of the training rows); it can be combined with ``group``. With ``time`` and
    ``fold`` the parts are the same for every seed. ``weight``: how much each row counts (0 or
    more, on any scale), in training and in all metrics and calibrators that support weights.

    ``text`` names a text column that is the only input, for a model ``hf:NAME``.

    A table that does not fit into memory is converted once, in $CALSWEEP_CACHE, and read from
    there batch by batch.
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
        paths = [self.path, *([] if self.test_path is None else [self.test_path])]
        if fits(sum(bytes_in_memory(path, self.separator) for path in paths)):
            files: list[Frames] = [WholeFrame(read_whole(p, self.separator)) for p in paths]
            content = self._content(files, in_memory_whole)
        else:
            content = converted_table(
                [
                    [file_identity([path], path.parent, "look again") for path in paths],
                    self.model_dump(mode="json", exclude=_NOT_READ),
                ],
                lambda keep: self._content([FrameChunks(p, self.separator) for p in paths], keep),
            )
        called = self.name or self.path.name.partition(".")[0]
        try:
            return FixedDataset(
                called,
                "table" if self.text is None else "text",
                content.parts[0],
                content.class_names,
                test=content.parts[1] if len(content.parts) == 2 else None,
                test_share=self.test_share,
                columns=content.columns,
            )
        except ValueError as error:  # about the classes: too many, or too few rows of them
            found = str(error).removeprefix(f"{called}: ")
            raise ValueError(f"{self.path}, column {self.target!r}: {found}") from None

    def _content(self, files: Sequence[Frames], keep: Keep) -> TableContent:
        """The rows of the file, and those of a second file of test rows, as numbers."""
        roles = Roles(self.group, self.time, self.fold, self.weight)
        inputs = self._inputs(files[0].head, roles)
        known = [self.target, *roles.named.values()]
        origins = [str(self.path), str(self.test_path)][: len(files)]
        for file, origin in zip(files, origins, strict=True):
            check_names([self.target], file.head, origin, "target")
            check_names(roles.named.values(), file.head, origin, "named")
            check_names(inputs, file.head, origin, "input")
            file.decide([*inputs, *known])
        columns = self._columns(files[0], inputs)
        rows = [
            together(file.chunks(known), f"{origin}: the columns {', '.join(known)} take")
            for file, origin in zip(files, origins, strict=True)
        ]
        where = [f"{origin}, column {self.target!r}" for origin in origins]
        classes = class_names_of(rows[0][self.target], where[0])
        described = read_roles(
            [{role: part[name] for role, name in roles.named.items()} for part in rows], origins
        )
        labels = [
            encode_labels(part[self.target], classes, origin)
            for part, origin in zip(rows, where, strict=True)
        ]
        encoded = self._encoded(files, columns, origins)
        parts = [
            Part(keep(number, len(labels[number]), pieces), labels[number], **described[number])
            for number, pieces in enumerate(encoded)
        ]
        return TableContent(tuple(parts), columns, classes)

    def _inputs(self, head: pd.DataFrame, roles: Roles) -> list[str]:
        """The names of the columns that are inputs."""
        origin = str(self.path)
        check_names([self.target], head, origin, "target")
        check_names([*self.drop, *self.categorical], head, origin, "input")
        check_names(roles.named.values(), head, origin, "named")
        used = {self.target: "the target"} | dict.fromkeys(self.categorical, "an input")
        check_roles(roles, origin, used)
        check_fold_alone(self, origin)
        aside = {self.target, *self.drop, *roles.named.values()}
        names = [name for name in head.columns if name not in aside]
        if not names:
            raise ValueError(
                f"{origin}: no column is left beside the target {self.target!r} and those dropped "
                "or used otherwise"
            )
        if self.text is None:
            return names
        check_names([self.text], head[names], origin, "text")
        if self.categorical:
            raise ValueError(
                f"{origin}: the text {self.text!r} is the only input; leave 'categorical' out"
            )
        return [self.text]

    def _columns(self, file: Frames, inputs: list[str]) -> tuple[Column, ...]:
        if self.text is None:
            return infer_from_chunks(file.chunks(inputs), inputs, self.categorical, str(self.path))
        if not all(holds_texts(rows[self.text].dropna()) for rows in file.chunks(inputs)):
            raise ValueError(f"{self.path}: column {self.text!r} does not hold texts")
        return (Column(self.text, "text"),)

    def _encoded(
        self, files: Sequence[Frames], columns: tuple[Column, ...], origins: Sequence[str]
    ) -> Iterator[Iterator[Tensor]]:
        """The raw inputs of each file, chunk by chunk."""
        names, width = [column.name for column in columns], 0
        if self.text is not None:
            width = max(longest_text(c[self.text]) for file in files for c in file.chunks(names))

        def pieces(file: Frames, origin: str) -> Iterator[Tensor]:
            first = 0
            for rows in file.chunks(names):
                raw = encode_columns(rows, columns, origin, first)
                yield padded(raw, width) if width else raw
                first += len(rows)

        return (pieces(file, origin) for file, origin in zip(files, origins, strict=True))
