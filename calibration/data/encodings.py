"""Encodings of a table's numeric columns for a network, fitted to the data.

Networks learn slowly from skewed columns and from thresholds, which trees find at once. TabM
(Gorishniy et al. 2025) uses piecewise-linear encodings or quantiles, RealMLP (Holzmüller et al.
2024) robust scaling with smooth clipping. All are fitted on training rows, without labels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
import torch
from torch import Tensor

NumericInputs = Literal["standard", "robust", "quantile", "piecewise"]

ColumnBlocks = Tensor | Iterable[Tensor]
"""A table's columns: all together (N, D), or in blocks of a few columns."""

MOST_QUANTILES = 1000
_TAIL = 1e-7  # beyond it Φ⁻¹ says more about rounding than about the data
_BEND = 3.0


@dataclass(frozen=True, eq=False)
class Robust:
    """(x − median) / interquartile range, smoothly clipped to ±3.

    If the quartiles coincide, half the range replaces the interquartile range.
    """

    median: Tensor
    scale: Tensor

    @classmethod
    def fit(cls, values: ColumnBlocks) -> Self:
        """Fit on training values (N, D) without gaps."""
        low, quarter, median, three, high = _quantiles(values, 5)
        spread = torch.where(three > quarter, three - quarter, (high - low) / 2)
        return cls(median, torch.where(spread > 0, spread, 1.0))

    def __call__(self, values: Tensor) -> Tensor:
        """Return float32 values (N, D)."""
        scaled = (values.double() - self.median.to(values.device)) / self.scale.to(values.device)
        return (scaled / (1 + (scaled / _BEND).square()).sqrt()).float()


@dataclass(frozen=True, eq=False)
class Quantiles:
    """Φ⁻¹ of the fraction of training values below x: every column becomes standard normal.

    Fractions are linear between ``quantiles`` (Q, D); tied values get the middle fraction.
    """

    quantiles: Tensor

    @classmethod
    def fit(cls, values: ColumnBlocks) -> Self:
        """Fit on training values (N, D) without gaps."""
        return cls(_quantiles(values, MOST_QUANTILES, fewer=True))

    def __call__(self, values: Tensor) -> Tensor:
        """Return float32 values (N, D)."""
        known = self.quantiles.to(values.device).T.contiguous()
        x = values.double().T.contiguous()
        share = (_share(x, known) + 1 - _share(-x, -known.flip(1))) / 2
        scores: Tensor = torch.special.ndtri(share.clamp(_TAIL, 1 - _TAIL))
        return scores.T.float()


@dataclass(frozen=True, eq=False)
class PiecewiseLinear:
    """For each bin between two quantiles of a column, the position of x in it, from 0 to 1.

    A linear layer on it is a piecewise-linear function of the column (Gorishniy et al. 2022),
    constant beyond the training values. ``edges`` holds the bin edges of every column.
    """

    edges: tuple[Tensor, ...]

    @classmethod
    def fit(cls, values: ColumnBlocks, bins: int) -> Self:
        """Fit on training values (N, D) without gaps; equal edges become one."""
        columns = (column.unique() for column in _quantiles(values, bins + 1).T)
        # Even a column that is constant in training gets a bin.
        return cls(tuple(c if len(c) > 1 else torch.cat([c, c + 1]) for c in columns))

    def __call__(self, values: Tensor) -> Tensor:
        """Return float32 values (N, bins of all columns)."""
        blocks = []
        for column, edges in zip(values.double().T, self.edges, strict=True):
            known = edges.to(values.device)
            blocks.append(((column[:, None] - known[:-1]) / known.diff()).clamp(0, 1).float())
        return torch.cat(blocks, dim=1) if blocks else values.float()


def _quantiles(values: ColumnBlocks, count: int, *, fewer: bool = False) -> Tensor:
    """``count`` evenly spaced quantiles (count, D) of the columns, in float64.

    With ``fewer``, at most as many as there are rows, but at least two.
    """
    found = []
    for block in [values] if isinstance(values, Tensor) else values:
        levels = np.linspace(0, 1, max(2, min(count, len(block))) if fewer else count)
        quantiles = np.quantile(block.double().numpy(), levels, axis=0)
        # Rounding in the interpolation must not make a quantile smaller than its predecessor.
        found.append(torch.from_numpy(np.maximum.accumulate(quantiles, axis=0)))
    return torch.cat(found, dim=1)


def _share(x: Tensor, known: Tensor) -> Tensor:
    """The fraction for each x (D, N) by its column's quantiles (D, Q): for ties, the highest."""
    steps = known.shape[1] - 1
    place = torch.searchsorted(known, x, right=True).clamp(1, steps) - 1
    low, high = known.gather(1, place), known.gather(1, place + 1)
    within = (x - low) / torch.where(high > low, high - low, 1.0)
    share = (place + within.clamp(0, 1)) / steps
    return torch.where(x >= known[:, -1:], 1.0, torch.where(x < known[:, :1], 0.0, share))
