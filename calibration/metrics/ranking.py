"""Samples in order of confidence, with cumulative sums: the shared work of the rank metrics."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from calibration.metrics.cpu import sort_values_


class Ranked(NamedTuple):
    """Samples sorted by confidence, least confident first.

    ``confidence`` has shape (..., N); the cumulative sums have shape (..., N+1) and start at 0.
    If samples have weights (N), the sums are weighted, and ``correct`` (N) is also set.
    """

    confidence: Tensor
    cumulative_confidence: Tensor
    cumulative_correct: Tensor
    weight: Tensor | None = None
    correct: Tensor | None = None

    @property
    def gaps(self) -> Tensor:
        """Confidence minus correctness, times the weight (..., N)."""
        if self.weight is None or self.correct is None:
            return self.confidence - self.cumulative_correct.diff(dim=-1)
        return self.weight * (self.confidence - self.correct)

    @property
    def samples(self) -> int:
        """The number N of samples."""
        return self.confidence.shape[-1]

    def correct_up_to(self, ranks: Tensor) -> Tensor:
        """Sum of ``correct`` over the ``ranks`` (..., R) least confident samples.

        Samples of equal confidence have no order, so each counts with the mean of its tied
        group: the sum is linear in the rank within the group.
        """
        ranks = ranks.expand(*self.confidence.shape[:-1], -1)
        level = self.confidence.gather(-1, ranks.clamp(max=self.samples - 1))
        start = torch.searchsorted(self.confidence, level)
        end = torch.searchsorted(self.confidence, level, right=True)
        before = self.cumulative_correct.gather(-1, start)
        after = self.cumulative_correct.gather(-1, end)
        return before + (after - before) * (ranks - start) / (end - start)


def rank(confidence: Tensor, correct: Tensor) -> Ranked:
    """Sort float64 confidences in [0, 1] (..., N) together with boolean correctness."""
    # Bits of non-negative floats sort like the floats. Shifted by one they have room for
    # `correct`, so that only values are sorted: several times faster than sorting with indices.
    # Adding 0 turns -0.0, whose bits would sort last, into 0.0.
    keys = (confidence + 0.0).view(torch.int64)
    keys = sort_values_(keys.bitwise_left_shift_(1).bitwise_or_(correct))
    hits = keys & 1
    values = keys.bitwise_right_shift_(1).view(torch.float64)
    return Ranked(values, _cumulative(values), _cumulative(hits))


def rank_weighted(confidence: Tensor, correct: Tensor, weight: Tensor) -> Ranked:
    """``rank`` of samples (N) with weights, which sum to N."""
    values, order = confidence.sort(stable=True)
    weights, hits = weight[order], correct[order].double()
    return Ranked(values, _cumulative(weights * values), _cumulative(weights * hits), weights, hits)


def _cumulative(values: Tensor) -> Tensor:
    shape = (*values.shape[:-1], values.shape[-1] + 1)
    sums = torch.zeros(shape, dtype=torch.float64, device=values.device)
    torch.cumsum(values, -1, dtype=torch.float64, out=sums[..., 1:])
    return sums
