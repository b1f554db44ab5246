"""Weights of rows: how much each counts, in training and wherever rows are averaged.

Only their ratios matter. Whoever uses them scales them to a mean of 1, so that they sum to the
number of rows and every constant that is worth so many rows (a prior, a penalty) keeps its worth.
"""

from __future__ import annotations

import torch
from torch import Tensor


def mean_one(weights: Tensor) -> Tensor:
    """The weights in float64, scaled to a mean of 1."""
    exact = weights.double()
    return exact / exact.mean()


def drawn_by_weight(weights: Tensor, size: int, offset: float) -> Tensor:
    """``size`` row numbers, each row as often as its weight says, in ascending order.

    Systematic resampling (Kitagawa 1996): a row whose share of the weight is worth x of the
    ``size`` places is there ⌊x⌋ or ⌈x⌉ times, and x times on average over ``offset`` in [0, 1).
    Of equal weights every row is there once if ``size`` is their number; whole numbers that sum
    to ``size`` are how often each row is there.
    """
    ends = weights.double().cumsum(0)
    marks = (torch.arange(size, dtype=torch.float64) + offset) * (float(ends[-1]) / size)
    # Rounding may move the last mark past all ends, and behind the last row that counts.
    return torch.searchsorted(ends, marks, right=True).clamp(max=int(weights.nonzero()[-1]))


def check_weights(weights: Tensor, what: str) -> None:
    """Raise ``ValueError`` naming ``what`` and the first value that cannot weigh a row."""
    exact = weights.double()
    bad = (~exact.isfinite() | (exact < 0)).nonzero()
    if len(bad):
        row = int(bad[0])
        raise ValueError(
            f"{what}: weights must be finite and not negative, found {float(exact[row]):g} in row "
            f"{row} (counted from 0)"
        )
    if not bool(exact.any()):
        raise ValueError(f"{what}: all {len(exact)} weights are 0; at least one row must count")
