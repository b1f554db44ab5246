"""Inputs of estimators: numbers with gaps, categories as codes or one-hot.

Encoders are transforms (``calibration.data.Transform``): fitted on the training part, made of
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
    """Raw inputs in float64, categories as consecutive codes, all that is missing as NaN.

    ``categories`` are the places of categorical columns, each with the raw codes that training
    had; one that training had not, or too rarely to be told apart, counts as missing.
    """

    categories: tuple[tuple[int, tuple[float, ...]], ...]

    @classmethod
    def fit(cls, inputs: Tensor, columns: tuple[Column, ...], most: int | None = None) -> Self:
        """Fit on the training part's raw inputs; ``most`` categories of a column are kept."""
        return cls(
            tuple(
                (place, _frequent(inputs[:, place], most))
                for place, column in enumerate(columns)
                if column.kind == "categorical"
            )
        )

    @property
    def categorical(self) -> tuple[int, ...]:
        """The places of the categorical columns."""
        return tuple(place for place, _ in self.categories)

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return the encoded inputs (N, columns); images are laid out in a row."""
        encoded = inputs.reshape(len(inputs), -1).double().clone()
        for place, codes in self.categories:
            encoded[:, place] = _positions(inputs[:, place], codes)
        return encoded


@dataclass(frozen=True, eq=False)
class OneHotColumns:
    """As ``NativeColumns``, but with an indicator for every category instead of a code."""

    native: NativeColumns

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return numbers, then a block of indicators for every categorical column."""
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
    """The encoder that an estimator wants, and the places of categorical columns after it."""
    if estimator.wants == "transformed":
        return splits.transform, ()
    native = NativeColumns.fit(splits.train.inputs, columns, estimator.most_categories)
    if estimator.wants == "one-hot":
        return OneHotColumns(native), ()
    return native, native.categorical


def _frequent(column: Tensor, most: int | None) -> tuple[float, ...]:
    """The codes of known categories in training, the most frequent ``most`` of them, sorted."""
    codes, counts = np.unique(column[column >= 0].numpy(), return_counts=True)
    kept = np.argsort(-counts, kind="stable")[:most]
    return tuple(np.sort(codes[kept]).tolist())


def _positions(column: Tensor, codes: tuple[float, ...]) -> Tensor:
    known = torch.tensor(codes, dtype=torch.float64)
    if not codes:
        return torch.full_like(column, torch.nan)
    places = torch.searchsorted(known, column.contiguous()).clamp(max=len(codes) - 1)
    return torch.where(known[places] == column, places.double(), torch.nan)
