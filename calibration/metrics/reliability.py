"""Reliability curves, as drawn in a reliability diagram."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from calibration.metrics.binning import BinSums, Scheme, mass_ranks, mass_sums, width_sums
from calibration.metrics.checks import Data, check_count
from calibration.metrics.predictions import Predictions
from calibration.metrics.ranking import Ranked


@dataclass(frozen=True)
class Bins:
    """Bins of confidence; all float64.

    ``count``, mean ``confidence`` and ``accuracy`` have shape (..., M) and are NaN in empty bins
    (except the count); ``edges`` has shape (..., M+1).
    """

    count: Tensor
    confidence: Tensor
    accuracy: Tensor
    edges: Tensor


@torch.no_grad()
def reliability_curve(
    probabilities_or_confidence: Data,
    labels_or_correct: Data,
    *,
    bins: int = 15,
    scheme: Scheme = "width",
) -> Bins:
    """Accuracy and mean confidence per bin of confidence, by equal width or equal mass.

    Takes probabilities (..., N, K) with labels (..., N) or confidence (..., N) with correct
    (..., N). Raises ``ValueError`` on malformed input or another ``scheme``.
    """
    predictions = Predictions.of(probabilities_or_confidence, labels_or_correct)
    number = check_count(bins, "bins")
    ranked = predictions.ranked
    if scheme == "width":
        edges = torch.linspace(
            0, 1, number + 1, dtype=torch.float64, device=ranked.confidence.device
        )
        return _means(width_sums(ranked, number), edges.expand(*predictions.batch, -1))
    if scheme == "mass":
        return _means(mass_sums(ranked, number), _mass_edges(ranked, number))
    raise ValueError(f"scheme must be 'width' or 'mass', found {scheme!r}")


def _means(sums: BinSums, edges: Tensor) -> Bins:
    # Division by a count of 0 gives the NaN that marks an empty bin.
    return Bins(sums.count, sums.confidence / sums.count, sums.correct / sums.count, edges)


def _mass_edges(ranked: Ranked, bins: int) -> Tensor:
    ranks = mass_ranks(ranked.samples, bins, ranked.confidence.device)
    below = ranked.confidence[..., (ranks - 1).clamp(min=0)]
    above = ranked.confidence[..., ranks.clamp(max=ranked.samples - 1)]
    return (below + above) / 2
