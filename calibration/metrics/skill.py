"""Scores relative to knowing only the classes' shares.

Functions take probabilities (..., N, K) and labels (..., N), return a float64 tensor of the
batch shape and raise ``ValueError`` on malformed input.
"""

from __future__ import annotations

import torch
from torch import Tensor

from calibration.metrics.checks import Data
from calibration.metrics.predictions import Predictions
from calibration.metrics.proper_scores import brier_losses, brier_of


@torch.no_grad()
def balanced_error(probabilities: Data, labels: Data) -> Tensor:
    """Mean over classes of the share of their rows whose most probable class is a different one.

    1 minus the balanced accuracy (Brodersen et al. 2010). Classes without a row are left out.
    """
    return balanced_error_of(Predictions.of_rows(probabilities, labels))


def balanced_error_of(predictions: Predictions) -> Tensor:
    """``balanced_error`` of checked predictions."""
    counts, wrong = _class_counts(predictions)
    rates = wrong / _at_least_one(counts)
    return rates.sum(-1) / (counts > 0).sum(-1)


def balanced_error_influences(predictions: Predictions) -> Tensor:
    """How much one more copy of a row would add to the balanced error, to first order (N)."""
    counts, wrong = _class_counts(predictions)
    _, labels = predictions.rows
    size = _at_least_one(counts)
    own = (wrong / size)[labels]
    return ((~predictions.correct).double() - own) / (size[labels] * (counts > 0).sum())


@torch.no_grad()
def brier_skill(probabilities: Data, labels: Data) -> Tensor:
    """1 - Brier/reference, where the reference always predicts the classes' shares of these rows.

    Murphy 1973: its Brier score is Σ_k π_k(1 - π_k) = 1 - Σ_k π_k². 1 is perfect, 0 no better
    than the base rate, negative worse. NaN if all rows are of one class.
    """
    return brier_skill_of(Predictions.of_rows(probabilities, labels))


def brier_skill_of(predictions: Predictions) -> Tensor:
    """``brier_skill`` of checked predictions."""
    _, reference = _shares(predictions)
    return torch.where(reference > 0, 1 - brier_of(predictions) / reference, torch.nan)


def brier_skill_influences(predictions: Predictions) -> Tensor:
    """How much one more copy of a row would add to the Brier skill, to first order (N)."""
    shares, reference = _shares(predictions)
    _, labels = predictions.rows
    losses = brier_losses(predictions)
    mean = predictions.mean(losses)
    ratio = mean / reference
    # The reference is 1 - Σπ²; one more row of class k raises π_k and scales all π down.
    of_reference = -2 * (shares[labels] - (1 - reference))
    return -(losses - mean - ratio * of_reference) / (reference * len(losses))


def _shares(predictions: Predictions) -> tuple[Tensor, Tensor]:
    """The classes' shares (..., K), and the Brier score of always predicting them (...)."""
    counts, _ = _class_counts(predictions)
    shares = counts / counts.sum(-1, keepdim=True)
    return shares, (shares * (1 - shares)).sum(-1)


def _class_counts(predictions: Predictions) -> tuple[Tensor, Tensor]:
    """Rows, and rows whose most probable class is another, of each class (..., K)."""
    probabilities, labels = predictions.rows
    *batch, samples, classes = probabilities.shape
    # For all batch elements at once: each has its own labels.
    offset = torch.arange(labels.numel() // samples, device=labels.device)[:, None] * classes
    cells = (labels.reshape(-1, samples) + offset).reshape(-1)
    size = offset.numel() * classes
    wrong, weights = (~predictions.correct).double().reshape(-1), predictions.weights
    if weights is not None:
        wrong = wrong * weights
    counts = torch.bincount(cells, weights, minlength=size).double()
    missed = torch.bincount(cells, weights=wrong, minlength=size)
    return counts.view(*batch, classes), missed.view(*batch, classes)


def _at_least_one(counts: Tensor) -> Tensor:
    """Counts or sums of weights to divide by, with 1 instead of 0."""
    return counts.masked_fill(counts == 0, 1)
