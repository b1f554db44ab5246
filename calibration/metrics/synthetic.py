"""Errors relative to a known posterior: for synthetic data P(y | x) can be computed.

Both functions take predicted probabilities and the true posterior, (..., N, K) each, return a
float64 tensor of the batch shape and raise ``ValueError`` on malformed input. Labels do not
enter: they are integrated out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from calibration.metrics.checks import Data, check_positive, check_simplex, to_floating
from calibration.metrics.predictions import Predictions
from calibration.metrics.smooth import Smoother


@torch.no_grad()
def true_ce(probabilities: Data, posterior: Data, *, bandwidth: float = 0.02) -> Tensor:
    """True calibration error E|E[P(correct | x) - conf | conf]|, smoothed over confidence.

    The inner expectation is a reflected Gaussian kernel average of the given bandwidth. A
    predictor of base rates has true_ce 0 although it knows nothing of x: see ``posterior_gap``.
    """
    width = check_positive(bandwidth, "bandwidth")
    confidence, chance = _confidence_and_chance(probabilities, posterior)
    level, order = confidence.sort(dim=-1)
    gap = level - chance.gather(-1, order)
    shape = (-1, level.shape[-1])
    pairs = zip(level.reshape(shape), gap.reshape(shape), strict=True)
    values = [Smoother(*pair).error(width) for pair in pairs]
    return torch.stack(values).view(confidence.shape[:-1])


@torch.no_grad()
def posterior_gap(probabilities: Data, posterior: Data) -> Tensor:
    """Mean of |conf - P(correct | x)|: the distance from the posterior's confidence."""
    confidence, chance = _confidence_and_chance(probabilities, posterior)
    return (confidence - chance).abs().mean(-1)


def true_ce_of(predictions: Predictions) -> Tensor:
    """``true_ce`` of predictions whose posterior is known."""
    return true_ce(predictions.rows[0], predictions.posterior)


def posterior_gap_of(predictions: Predictions) -> Tensor:
    """``posterior_gap`` of predictions whose posterior is known."""
    return posterior_gap(predictions.rows[0], predictions.posterior)


def _confidence_and_chance(probabilities: Data, posterior: Data) -> tuple[Tensor, Tensor]:
    rows = to_floating(probabilities, "probabilities")
    truth = to_floating(posterior, "posterior").to(rows.device)
    if rows.shape != truth.shape or rows.ndim < 2:
        raise ValueError(
            "probabilities and posterior must both have shape (..., N, K), "
            f"found {tuple(rows.shape)} and {tuple(truth.shape)}"
        )
    check_simplex(rows, "probabilities")
    check_simplex(truth, "posterior")
    confidence, predicted = rows.max(dim=-1)
    chance = truth.gather(-1, predicted[..., None]).squeeze(-1)
    return confidence.double(), chance.double()
