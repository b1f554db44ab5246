"""Inputs of estimators: numbers with missing values, categories as codes or one-hot.

Encoders are transforms (``calibration.data.Transform``): fitted on the training part, defined by
plain values, saved and loaded with ``calibration.data.saving``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from calibration.data import Column, Splits, Transform
from calibration.learners.estimator import Estimator


@dataclass(frozen=True, eq=False)
class NativeColumns:
    """Raw inputs in float64, with categories as consecutive codes and missing values as NaN.

    ``categories`` are the indices of categorical columns, each with the raw codes kept from the
    training part; codes not seen there, or too rare to be kept, count as missing.
    """

    categories: tuple[tuple[int, tuple[float, ...]], ...]

    @classmethod
    def fit(cls, inputs: Tensor, columns: tuple[Column, ...], most: int | None = None) -> Self:
        """Fit on the training part's raw inputs; keeps at most ``most`` categories per column."""
        return cls(
            tuple(
                (place, _frequent(inputs[:, place], most))
                for place, column in enumerate(columns)
                if column.kind == "categorical"
            )
        )

    @property
    def categorical(self) -> tuple[int, ...]:
        """The indices of the categorical columns."""
        return tuple(place for place, _ in self.categories)

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return the encoded inputs (N, columns); images are flattened."""
        encoded = inputs.reshape(len(inputs), -1).double().clone()
        for place, codes in self.categories:
            encoded[:, place] = _positions(inputs[:, place], codes)
        return encoded


@dataclass(frozen=True, eq=False)
class OneHotColumns:
    """Like ``NativeColumns``, but with one indicator per category instead of a code."""

    native: NativeColumns

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return the numbers, then a block of indicators per categorical column."""
        encoded = self.native(inputs)
        places = self.native.categorical
        numbers = [place for place in range(encoded.shape[1]) if place not in places]
        blocks = [encoded[:, numbers]]
        for place, codes in self.native.categories:
            levels = torch.arange(len(codes), dtype=torch.float64)
            blocks.append((encoded[:, place, None] == levels).double())
        return torch.cat(blocks, dim=1)


def encoder_for(
    estimator: Estimator, splits: Splits, columns: tuple[Column, ...]
) -> tuple[Transform, tuple[int, ...]]:
    """The encoder for an estimator, and the indices of the categorical columns in its output."""
    if estimator.wants == "transformed":
        return splits.transform, ()
    native = NativeColumns.fit(splits.train.inputs, columns, estimator.most_categories)
    if estimator.wants == "one-hot":
        return OneHotColumns(native), ()
    return native, native.categorical


def _frequent(column: Tensor, most: int | None) -> tuple[float, ...]:
    """The codes of the ``most`` most frequent known categories in training, sorted."""
    codes, counts = np.unique(column[column >= 0].numpy(), return_counts=True)
    kept = np.argsort(-counts, kind="stable")[:most]
    return tuple(np.sort(codes[kept]).tolist())


def _positions(column: Tensor, codes: tuple[float, ...]) -> Tensor:
    known = torch.tensor(codes, dtype=torch.float64)
    if not codes:
        return torch.full_like(column, torch.nan)
    places = torch.searchsorted(known, column.contiguous()).clamp(max=len(codes) - 1)
    return torch.where(known[places] == column, places.double(), torch.nan)
