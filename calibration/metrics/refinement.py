"""Decomposition of the NLL into what a temperature can correct and what it cannot.

Berta et al. 2025 ("Rethinking early stopping: refine, then calibrate"): refinement is the NLL
after the best temperature, calibration the rest. All raise ``ValueError`` on malformed input.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from scipy.optimize import brentq
from torch import Tensor

from calibration.metrics.checks import Data, check_count, check_logits, check_rows
from calibration.metrics.chunks import map_rows
from calibration.metrics.predictions import Predictions
from calibration.metrics.proper_scores import cross_entropy
from calibration.row_weights import mean_one

# With fewer samples, the optimism of fitting and scoring on the same set is worth avoiding.
CROSS_FIT_BELOW = 1000
CROSS_FIT_FOLDS = 5
# Error-free samples are best sharpened without limit; at this β their NLL is 0 in float64.
SHARPEST = 2.0**30


class NllParts(NamedTuple):
    """nll = refinement + calibration."""

    nll: Tensor
    refinement: Tensor
    calibration: Tensor


@torch.no_grad()
def nll_decomposition(
    probabilities: Data,
    labels: Data,
    *,
    folds: int | None = None,
    weights: Tensor | None = None,
) -> NllParts:
    """``nll_decomposition_from_logits`` of probabilities (..., N, K), through their logarithm.

    Probabilities that underflowed to 0 enter the fit as the smallest normal number of their
    type; if that happened to a true class, nll and calibration are infinite.
    """
    rows, targets = check_rows(probabilities, labels)
    smallest = torch.finfo(rows.dtype).tiny
    true = rows.gather(-1, targets[..., None]).squeeze(-1).double()
    scaled = None if weights is None else mean_one(weights).to(rows.device)
    refinement = _refinement(rows.double().clamp(min=smallest).log_(), targets, folds, scaled)
    score = _mean(-true.log(), scaled)
    return NllParts(score, refinement, score - refinement)


@torch.no_grad()
def nll_decomposition_from_logits(
    logits: Data, labels: Data, *, folds: int | None = None, weights: Tensor | None = None
) -> NllParts:
    """Split the NLL of logits (..., N, K) into refinement and calibration.

    refinement = min over β >= 0 of the NLL of softmax(β·logits), calibration = NLL - refinement.
    ``folds`` > 1 scores every fold (every folds-th row) with β fitted on the others, so that
    calibration may be slightly negative; 1 fits and scores on the same set. By default 5 folds
    are used below 1000 samples. ``weights`` (N), without a batch, are those of the rows.
    """
    rows, targets = check_logits(logits, labels)
    scaled = None if weights is None else mean_one(weights).to(rows.device)
    score = _mean(map_rows(cross_entropy, rows, targets), scaled)
    refinement = _refinement(rows, targets, folds, scaled)
    return NllParts(score, refinement, score - refinement)


def refinement_of(predictions: Predictions) -> Tensor:
    """min over β ≥ 0 of the NLL of softmax(β·log p) (Berta et al. 2025)."""
    return nll_decomposition(*predictions.rows, weights=predictions.weights).refinement


def _mean(values: Tensor, weights: Tensor | None) -> Tensor:
    """The weighted mean over the last dimension; a value of weight 0 may be infinite."""
    if weights is None:
        return values.mean(-1)
    return torch.where(weights > 0, values * weights, 0.0).sum(-1) / weights.sum()


def _refinement(
    logits: Tensor, labels: Tensor, folds: int | None, weights: Tensor | None = None
) -> Tensor:
    *batch, samples, classes = logits.shape
    if folds is None:
        folds = min(CROSS_FIT_FOLDS, samples) if samples < CROSS_FIT_BELOW else 1
    elif check_count(folds, "folds") > samples:
        raise ValueError(f"folds must not exceed the {samples} samples, found {folds}")
    values = [
        _cross_fitted(rows, targets, folds, weights)
        for rows, targets in zip(
            logits.reshape(-1, samples, classes), labels.reshape(-1, samples), strict=True
        )
    ]
    return torch.stack(values).view(batch)


def _cross_fitted(logits: Tensor, labels: Tensor, folds: int, weights: Tensor | None) -> Tensor:
    if folds == 1:
        return _nll(logits, labels, best_sharpness(logits, labels, weights=weights), weights)
    fold = torch.arange(len(labels), device=labels.device) % folds
    total = torch.zeros((), dtype=torch.float64, device=labels.device)
    for number in range(folds):
        inside = fold == number
        # An error-free training part would give β = ∞, and one held-out error an infinite NLL.
        caution = 1 / (int((~inside).sum()) + 1)
        within, outside = (None, None) if weights is None else (weights[inside], weights[~inside])
        if outside is not None and not bool(outside.any()):
            outside = None
        beta = best_sharpness(logits[~inside], labels[~inside], caution, outside)
        size = inside.sum() if within is None else within.sum()
        if size > 0:
            total += _nll(logits[inside], labels[inside], beta, within) * size
    return total / len(labels)


def best_sharpness(
    logits: Tensor, labels: Tensor, smoothing: float = 0.0, weights: Tensor | None = None
) -> float:
    """The β >= 0 (one over the temperature) that minimises the NLL of softmax(β·logits).

    The NLL is convex in β; its slope, the mean of E_softmax[z] - z_y, is bracketed and solved.
    ``smoothing`` is the share of every label that is spread evenly over the classes.
    """

    def slope(beta: float) -> float:
        def excess(block: Tensor, targets: Tensor) -> Tensor:
            true = block.gather(-1, targets[:, None]).squeeze(-1)
            target = true.lerp_(block.mean(-1), smoothing)
            return ((block * beta).softmax(-1) * block).sum(-1) - target

        return float(_mean(map_rows(excess, logits, labels), weights))

    if slope(0.0) >= 0:
        return 0.0
    high = 1.0
    while slope(high) < 0:
        high *= 2
        if high > SHARPEST:
            return SHARPEST
    return float(brentq(slope, 0.0, high, xtol=1e-12, rtol=1e-10))


def _nll(logits: Tensor, labels: Tensor, beta: float, weights: Tensor | None = None) -> Tensor:
    losses = map_rows(lambda rows, targets: cross_entropy(rows * beta, targets), logits, labels)
    return _mean(losses, weights)
