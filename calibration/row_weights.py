"""Row weights: how much each row counts, in training and wherever rows are averaged.

Only their ratios matter. They are scaled to a mean of 1 wherever they are used, so that they sum
to the number of rows, and constants measured in rows (a prior, a penalty) keep their strength.
"""

from __future__ import annotations

import torch
from torch import Tensor


def mean_one(weights: Tensor) -> Tensor:
    """The weights in float64, scaled to a mean of 1."""
    exact = weights.double()
    return exact / exact.mean()


def drawn_by_weight(weights: Tensor, size: int, offset: float) -> Tensor:
    """Draw ``size`` row numbers in proportion to the weights, in ascending order.

    Systematic resampling (Kitagawa 1996): a row whose share of the weight corresponds to x of the
    ``size`` draws occurs ⌊x⌋ or ⌈x⌉ times, and x times on average over ``offset`` in [0, 1).
    With equal weights, every row occurs once if ``size`` is the number of rows; weights that are
    whole numbers and sum to ``size`` are the exact counts.
    """
    ends = weights.double().cumsum(0)
    marks = (torch.arange(size, dtype=torch.float64) + offset) * (float(ends[-1]) / size)
    # Rounding may move the last mark beyond all ends, past the last row of positive weight.
    return torch.searchsorted(ends, marks, right=True).clamp(max=int(weights.nonzero()[-1]))


def check_weights(weights: Tensor, what: str) -> None:
    """Raise ``ValueError`` naming ``what`` and the first value that is not a valid weight."""
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
