"""The core of all binning: sums per bin, for bins of equal width and of equal mass.

Equal width: bins ((m-1)/M, m/M], m = 1…M, of the unit interval; 0 belongs to the first bin,
and 1 to the last (Guo et al. 2017). Equal mass: M bins with counts as equal as possible, by rank
of confidence (Nguyen & O'Connor 2015); quantile edges would collapse for saturated networks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import nextafter
from typing import Literal

import torch
from torch import Tensor

from calibration.metrics.ranking import Ranked

Scheme = Literal["width", "mass"]


@dataclass(frozen=True)
class BinSums:
    """Per bin, shape (..., M): number of samples, sum of confidence, sum of correctness.

    Samples with weights are counted by weight.
    """

    count: Tensor
    confidence: Tensor
    correct: Tensor

    @property
    def share(self) -> Tensor:
        """Fraction of the samples in each bin."""
        return self.count / self.count.sum(-1, keepdim=True)

    @property
    def gap(self) -> Tensor:
        """Mean confidence minus accuracy of each bin; 0 where the bin is empty."""
        return torch.where(self.count > 0, (self.confidence - self.correct) / self.count, 0.0)


@lru_cache(maxsize=64)
def inner_edges(bins: int) -> tuple[float, ...]:
    """The edges m/M, 0 < m < M, each rounded down to a float64.

    Rounded down, ``value <= edge`` is true of a stored number exactly when value <= m/M is;
    rounded to nearest it would not be (the float64 0.1 is above 1/10, 0.6 below 6/10).
    """
    edges = []
    for m in range(1, bins):
        edge = m / bins
        numerator, denominator = edge.as_integer_ratio()
        edges.append(nextafter(edge, 0.0) if numerator * bins > m * denominator else edge)
    return tuple(edges)


def width_sums(ranked: Ranked, bins: int) -> BinSums:
    """Bin ranked samples by equal width."""
    if ranked.weight is not None:
        return _weighted_width_sums(ranked, bins)
    edges = _edge_tensor(bins, ranked.confidence.device)
    batch = ranked.confidence.shape[:-1]
    # A bin is closed on the right: a confidence equal to an edge is below it.
    inner = torch.searchsorted(ranked.confidence, edges.expand(*batch, -1).contiguous(), right=True)
    first = inner.new_zeros(*batch, 1)
    return _sums_between(ranked, torch.cat([first, inner, first + ranked.samples], dim=-1))


def mass_sums(ranked: Ranked, bins: int) -> BinSums:
    """Bin ranked samples by equal mass; tied confidences share their mean correctness.

    With weights, bins have exactly equal weight: a sample on a boundary belongs to both.
    """
    if ranked.weight is not None:
        return _weighted_mass_sums(ranked, bins)
    ranks = mass_ranks(ranked.samples, bins, ranked.confidence.device)
    return _sums_between(ranked, ranks.expand(*ranked.confidence.shape[:-1], -1))


def mass_marks(weight: Tensor, bins: int) -> Tensor:
    """Cumulative weights (M+1) at which bins of equal weight meet."""
    numbers = torch.arange(bins + 1, dtype=torch.float64, device=weight.device)
    return numbers / bins * weight.sum()


def _weighted_width_sums(ranked: Ranked, bins: int) -> BinSums:
    weight, correct = ranked.weight, ranked.correct
    assert weight is not None, "asked only where there are some"
    assert correct is not None, "there with the weights"
    index = width_index(ranked.confidence, bins)
    return BinSums(
        *(
            torch.bincount(index, values, minlength=bins)
            for values in (weight, weight * ranked.confidence, weight * correct)
        )
    )


def _weighted_mass_sums(ranked: Ranked, bins: int) -> BinSums:
    assert ranked.weight is not None, "asked only where there are some"
    last = torch.ones_like(ranked.confidence, dtype=torch.bool)
    last[:-1] = ranked.confidence[1:] != ranked.confidence[:-1]
    # Sums grow linearly with the weight within a group of ties, so between their ends.
    ends = torch.cat([last.new_ones(1), last])
    summed = ranked.weight.cumsum(0)
    knots = torch.cat([summed.new_zeros(1), summed])[ends]
    marks = mass_marks(ranked.weight, bins)
    right = torch.searchsorted(knots, marks).clamp(1, len(knots) - 1)
    width = knots[right] - knots[right - 1]
    share = torch.where(width > 0, (marks - knots[right - 1]) / width, 1.0).clamp(0, 1)

    def between(cumulative: Tensor) -> Tensor:
        values = cumulative[ends]
        return torch.lerp(values[right - 1], values[right], share).diff()

    return BinSums(
        marks.diff(),
        between(ranked.cumulative_confidence),
        between(ranked.cumulative_correct),
    )


def mass_ranks(samples: int, bins: int, device: torch.device) -> Tensor:
    """Ranks (M+1) at which equal-mass bins meet; the first N mod M bins hold one sample more."""
    numbers = torch.arange(bins + 1, device=device)
    return numbers * (samples // bins) + numbers.clamp(max=samples % bins)


def _sums_between(ranked: Ranked, ranks: Tensor) -> BinSums:
    """Sums over the samples between consecutive ``ranks`` (..., M+1)."""
    return BinSums(
        ranks.diff(dim=-1).double(),
        ranked.cumulative_confidence.gather(-1, ranks).diff(dim=-1),
        ranked.correct_up_to(ranks).diff(dim=-1),
    )


def width_index(values: Tensor, bins: int) -> Tensor:
    """Bin number 0…M-1 of values under equal width, exact for the stored numbers."""
    if values.dtype == torch.float64 or bins >= 2**29:
        return torch.bucketize(values.double(), _edge_tensor(bins, values.device))
    # At most 24 significant bits: the product is exact in float64, and this is faster.
    return (values.double().mul_(bins).ceil_().long() - 1).clamp_(0, bins - 1)


def _edge_tensor(bins: int, device: torch.device) -> Tensor:
    return torch.tensor(inner_edges(bins), dtype=torch.float64, device=device)
