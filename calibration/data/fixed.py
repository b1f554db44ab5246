"""Datasets with a fixed set of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from types import FunctionType

import numpy as np
import torch
from torch import Tensor

from calibration.data.columns import Column
from calibration.data.dataset import FOLD_NAMES, Dataset, Kind, Part, Splits
from calibration.data.fingerprint import fingerprint
from calibration.data.protocol import Protocol, Share
from calibration.data.roles import check_part
from calibration.data.splitting import draw_part, part_size, split_pool, stream, take, without
from calibration.data.transforms import fit_transform

TEST_SHARE = 0.25


class FixedDataset(Dataset):
    """Rows in memory, with an official test part or a share set aside as one.

    The share is drawn from a constant stream: which rows are test data depends only on the
    data. Raises ``ValueError`` for fewer than two classes, labels outside
    0…K−1, different lengths, or test inputs of another shape.
    """

    independent_draws = False
    train_transform: Callable[[Tensor], Tensor] | None = None

    def __init__(
        self,
        name: str,
        kind: Kind,
        rows: Part,
        class_names: tuple[str, ...],
        *,
        test: Part | None = None,
        test_share: Share = TEST_SHARE,
        columns: tuple[Column, ...] = (),
    ) -> None:
        self.name, self.kind, self.class_names, self.columns = name, kind, class_names, columns
        if len(class_names) < 2:
            raise ValueError(f"{name}: a classifier needs two classes, found {list(class_names)}")
        _check(rows, f"{name}: the rows", self.classes)
        self._test_share: Share | None = None
        if test is None:
            if rows.folds is None:
                self._test_share = test_share
            rows, test = self._set_aside(rows, test_share)
        _check(test, f"{name}: the test rows", self.classes)
        if rows.inputs.shape[1:] != test.inputs.shape[1:]:
            raise ValueError(
                f"{name}: inputs have shape {tuple(rows.inputs.shape[1:])} in training "
                f"but {tuple(test.inputs.shape[1:])} in the test part"
            )
        check_part(test, f"{name}: the test part", class_names, judges=True)
        check_part(rows, f"{name}: the pool (all but the test part)", class_names, judges=False)
        self._pool, self._test = rows, test
        self.fixed_split = rows.folds is not None or rows.times is not None
        self.weighted = rows.weights is not None
        if test.groups is not None:
            self.test_groups = len(test.groups.unique())

    @property
    def pool(self) -> Part:
        """All rows except the test part."""
        return self._pool

    def _set_aside(self, rows: Part, share: Share) -> tuple[Part, Part]:
        everything = np.arange(len(rows.labels))
        if rows.folds is not None:
            held = np.flatnonzero(rows.folds.numpy() == FOLD_NAMES.index("test"))
        else:
            what = f"{self.name}: the test part"
            size = part_size(share, rows.labels.numpy(), what)
            held = draw_part(rows, everything, size, stream("test"), what)
        return take(rows, without(everything, held)), take(rows, held)

    def subset(self, train_rows: int | None, test_rows: int | None) -> FixedDataset:
        """The dataset with fewer rows, every class in proportion; None keeps a part whole.

        The choice depends only on the data. Raises ``ValueError`` if there are too few rows.
        """
        pool = self._fewer(self._pool, train_rows, "training")
        test = self._fewer(self._test, test_rows, "test")
        if pool is self._pool and test is self._test:
            return self
        return FixedDataset(
            self.name, self.kind, pool, self.class_names, test=test, columns=self.columns
        )

    def _fewer(self, part: Part, size: int | None, word: str) -> Part:
        if size is None or size == len(part.labels):
            return part
        what = f"{self.name}: a subset of the {word} rows"
        rows = np.arange(len(part.labels))
        return take(part, draw_part(part, rows, size, stream("subset", word), what))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all rows, class names, columns and the size of the test part.

        Groups, times, folds and weights count as part of the rows.
        """
        description: list[object] = [self.kind, self.class_names, self.columns, self._test_share]
        if self._pool.described:  # only then, so that data without them keeps its fingerprint
            description.append(self._pool.described)
        if self.train_transform is not None:  # another transform means other trials
            description.append({"train_transform": described(self.train_transform)})
        tensors = (*self._pool, *self._test)
        return fingerprint(description, [values for values in tensors if values is not None])

    def split(self, protocol: Protocol, seed: int, *, held_out: bool) -> Splits:
        """Divide the rows outside the test part; see ``Dataset.split``."""
        splits = split_pool(
            self._pool,
            protocol,
            seed,
            held_out=held_out,
            validation=protocol.validation,
            fit=partial(fit_transform, columns=self.columns),
            name=self.name,
        )
        for part, word in (
            (splits.train, "training"),
            (splits.validation, "validation"),
            (splits.apart, "choice"),
            (splits.meta_validation, "meta-validation"),
        ):
            if part is not None:
                what = f"{self.name}: the {word} part of protocol {protocol.name!r}"
                check_part(part, what, self.class_names, judges=word != "training")
        return replace(splits, train_transform=self.train_transform)

    def test(self, seed: int) -> Part:
        """Return the test part, the same for every seed."""
        return self._test


def described(transform: Callable[[Tensor], Tensor]) -> str:
    """A text that identifies a user's transform. Raises ``ValueError`` if there is none."""
    named = isinstance(transform, FunctionType) and "<" not in transform.__qualname__
    text = f"{transform.__module__}.{transform.__qualname__}" if named else repr(transform)
    if " at 0x" in text:
        raise ValueError(
            f"train_transform: {text} does not tell what it does, and trials could not be told "
            "apart by it; use a function at the top of a module, or a class with a __repr__"
        )
    return text


def _check(part: Part, what: str, classes: int) -> None:
    inputs, labels = part.inputs, part.labels
    if len(inputs) != len(labels):
        raise ValueError(f"{what}: {len(inputs)} inputs but {len(labels)} labels")
    if len(labels) == 0:
        raise ValueError(f"{what}: there are none")
    if labels.dtype != torch.int64:
        raise ValueError(f"{what}: labels must be int64, found {labels.dtype}")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise ValueError(f"{what}: labels must lie in 0…{classes - 1}, found {low}…{high}")
