"""Proper scores and their decompositions into calibration and what calibration cannot correct.

Functions take probabilities (or logits) (..., N, K) and labels (..., N), return float64
tensors of the batch shape and raise ``ValueError`` on malformed input.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from calibration.metrics.binning import BinSums, width_sums
from calibration.metrics.checks import Data, check_count, check_logits
from calibration.metrics.chunks import map_rows
from calibration.metrics.classwise import classwise_sums
from calibration.metrics.predictions import Predictions


class BrierParts(NamedTuple):
    """brier = reliability - resolution + uncertainty + remainder.

    The remainder is the effect of binning: Σ over bins of the within-bin variance of the forecast
    minus twice its within-bin covariance with the outcome (Stephenson et al. 2008).
    """

    brier: Tensor
    reliability: Tensor
    resolution: Tensor
    uncertainty: Tensor
    remainder: Tensor


@torch.no_grad()
def nll(probabilities: Data, labels: Data) -> Tensor:
    """Mean of -log p_y; infinite as soon as one true class has probability 0.

    The logarithmic score (Good 1952). A float32 softmax of logits far apart underflows to 0;
    ``nll_from_logits`` avoids this.
    """
    return nll_of(Predictions.of_rows(probabilities, labels))


def nll_of(predictions: Predictions) -> Tensor:
    """``nll`` of checked predictions."""
    return predictions.mean(nll_losses(predictions))


def nll_losses(predictions: Predictions) -> Tensor:
    """-log p_y of each sample, float64 (..., N)."""
    return -predictions.label_probability.log()


@torch.no_grad()
def nll_from_logits(logits: Data, labels: Data) -> Tensor:
    """Mean of log Σ_k exp(z_k) - z_y in float64: accurate however large the logits."""
    rows, targets = check_logits(logits, labels)
    return map_rows(cross_entropy, rows, targets).mean(-1)


@torch.no_grad()
def brier(probabilities: Data, labels: Data) -> Tensor:
    """Mean of Σ_k (p_k - [y = k])², between 0 and 2 (Brier 1950).

    For two classes this is twice the score of the positive class alone (scikit-learn's).
    """
    return brier_of(Predictions.of_rows(probabilities, labels))


def brier_of(predictions: Predictions) -> Tensor:
    """``brier`` of checked predictions: Σ_k (p_k - [y = k])² = Σ_k p_k² + 1 - 2 p_y."""
    true = predictions.label_probability
    squares = predictions.moments[1] / true.shape[-1]
    return (squares + 1 - 2 * predictions.mean(true)).clamp(min=0)


def brier_losses(predictions: Predictions) -> Tensor:
    """Σ_k (p_k - [y = k])² of each sample, float64 (..., N)."""
    return map_rows(_squared_error, *predictions.rows)


@torch.no_grad()
def error(probabilities: Data, labels: Data) -> Tensor:
    """Share of samples whose most probable class is not the label.

    Also takes (confidence, correct).
    """
    return error_of(Predictions.of(probabilities, labels))


def error_of(predictions: Predictions) -> Tensor:
    """``error`` of checked predictions."""
    if predictions.weights is not None:
        return predictions.mean((~predictions.correct).double())
    return (~predictions.correct).sum(-1, dtype=torch.float64) / predictions.correct.shape[-1]


def accuracy_of(predictions: Predictions) -> Tensor:
    """Share of samples whose most probable class is the label."""
    if predictions.weights is not None:
        return predictions.mean(predictions.correct.double())
    return predictions.correct.sum(-1, dtype=torch.float64) / predictions.correct.shape[-1]


@torch.no_grad()
def brier_decomposition(probabilities: Data, labels: Data, *, bins: int = 15) -> BrierParts:
    """Murphy's (1973) decomposition over equal-width bins.

    reliability Σ_m (n_m/N)(conf_m - freq_m)², resolution Σ_m (n_m/N)(freq_m - base)²,
    uncertainty base(1 - base); for probability rows each part is summed over the classes, for
    (confidence, correct) it is that of the binary score (confidence - correct)².
    """
    predictions = Predictions.of(probabilities, labels)
    number = check_count(bins, "bins")
    if predictions.has_rows:
        score = brier_of(predictions)
        sums = classwise_sums(predictions, number)
    else:
        residual = predictions.confidence - predictions.correct.double()
        score = residual.square().mean(-1)
        # One "class", so that both kinds of input reduce over the same dimensions.
        top = width_sums(predictions.ranked, number)
        sums = BinSums(*(part.unsqueeze(-2) for part in (top.count, top.confidence, top.correct)))
    base = sums.correct.sum(-1, keepdim=True) / sums.count.sum(-1, keepdim=True)
    frequency = sums.correct / sums.count.clamp(min=1)
    reliability = (sums.share * sums.gap.square()).sum((-2, -1))
    resolution = (sums.share * (frequency - base).square()).sum((-2, -1))
    uncertainty = (base * (1 - base)).sum((-2, -1))
    remainder = score - (reliability - resolution + uncertainty)
    return BrierParts(score, reliability, resolution, uncertainty, remainder)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """log Σ_k exp(z_k) - z_y of each row of float64 logits (n, K)."""
    return logits.logsumexp(-1) - logits.gather(-1, labels[:, None]).squeeze(-1)


def _squared_error(probabilities: Tensor, labels: Tensor) -> Tensor:
    one = torch.ones((), dtype=torch.float64, device=labels.device).expand(len(labels), 1)
    residual = probabilities.scatter_add_(-1, labels[:, None], -one)
    return residual.square_().sum(-1)
