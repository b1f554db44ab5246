"""The reject option: error among the most confident samples (Geifman & El-Yaniv 2017).

Functions take probabilities (..., N, K) with labels (..., N), or confidence (..., N) with
correct (..., N), and raise ``ValueError`` on malformed input. Samples of equal confidence are
accepted in no particular order: each counts with the mean of its group.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

import torch
from torch import Tensor

from calibration.metrics.checks import Data, check_positive
from calibration.metrics.predictions import Predictions


class RiskCoverage(NamedTuple):
    """Coverage r/N, r = 1…N, shape (N), and the error among the r most confident (..., N)."""

    coverage: Tensor
    risk: Tensor


@torch.no_grad()
def risk_coverage_curve(probabilities: Data, labels: Data) -> RiskCoverage:
    """Error rate among the r most confident samples, for every r."""
    return _curve(Predictions.of(probabilities, labels))


@torch.no_grad()
def aurc(probabilities: Data, labels: Data) -> Tensor:
    """Area under the risk-coverage curve (Geifman & El-Yaniv 2017): the mean of its risks."""
    return aurc_of(Predictions.of(probabilities, labels))


def aurc_of(predictions: Predictions) -> Tensor:
    """``aurc`` of checked predictions."""
    return _curve(predictions).risk.mean(-1)


@torch.no_grad()
def accuracy_at_coverage(probabilities: Data, labels: Data, coverage: float) -> Tensor:
    """Accuracy among the ⌈coverage·N⌉ most confident samples, 0 < coverage <= 1."""
    predictions = Predictions.of(probabilities, labels)
    samples = predictions.confidence.shape[-1]
    # Rounding first prevents 0.07 · 100 = 7.000000000000001 from becoming 8 samples.
    accepted = ceil(round(check_positive(coverage, "coverage", most=1) * samples, 6))
    kept = torch.tensor([max(1, accepted)], device=predictions.confidence.device)
    return (_correct_among_top(predictions, kept) / kept).squeeze(-1)


def _curve(predictions: Predictions) -> RiskCoverage:
    confidence = predictions.confidence
    samples = confidence.shape[-1]
    kept = torch.arange(1, samples + 1, device=confidence.device)
    return RiskCoverage(kept.double() / samples, 1 - _correct_among_top(predictions, kept) / kept)


def _correct_among_top(predictions: Predictions, kept: Tensor) -> Tensor:
    ranked = predictions.ranked
    rejected = ranked.confidence.shape[-1] - kept
    return ranked.cumulative_correct[..., -1:] - ranked.correct_up_to(rejected)
