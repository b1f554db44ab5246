"""One temperature for all classes, alone or in an ensemble (Guo et al. 2017, Zhang et al. 2020)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from scipy import optimize
from torch import Tensor

from calibration.calibrators.calibrator import CALIBRATORS, Calibrator, Floats, rows_at_once
from calibration.complexity import CalibratorComplexity

MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-8, 1e8


@CALIBRATORS.register("temperature")
class Temperature(Calibrator):
    """softmax(z / T) with the T > 0 that minimises NLL (Guo et al. 2017).

    NLL is convex in 1/T; its derivative's root is bracketed and found by Brent's method.
    T lies in [1e-8, 1e8]. ``converged`` is False where NLL has no minimum in that range:

    - if every fitting sample is ranked correctly, NLL keeps falling as T → 0. Then T is the
      value at which NLL is 1/(N+1) above its limit, about as certain as N successes in a row
      allow; or 1 if NLL is already below that;
    - if the logits carry no information about the labels, T ends at its upper bound.
    """

    description = "one temperature for all logits (Guo et al. 2017)"
    complexity = CalibratorComplexity.ONE_NUMBER
    scaling = True
    keeps_argmax = True
    fast = True
    weighted = True

    temperature: float

    def _fit(self, logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> None:
        self.temperature, self.converged = best_temperature(logits, labels, weights)

    def _apply(self, logits: Tensor) -> Tensor:
        return torch.softmax(logits / self.temperature, 1)


@CALIBRATORS.register("ensemble_temperature")
class EnsembleTemperature(Calibrator):
    """w₁ softmax(z/T) + w₂ softmax(z) + w₃/K, w on the simplex (Zhang et al. 2020).

    T is that of ``temperature``; the weights then minimise NLL, a convex problem.
    """

    description = "mixture of scaled, plain and uniform probabilities (Zhang et al. 2020)"
    complexity = CalibratorComplexity.FEW_NUMBERS
    scaling = True
    keeps_argmax = True
    fast = True
    weighted = True

    temperature: float
    weights: tuple[float, float, float]

    def _fit(self, logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> None:
        self.temperature, converged = best_temperature(logits, labels, weights)
        share = None if weights is None else (weights / weights.sum()).numpy()
        true = torch.stack(
            [part.gather(1, labels[:, None]).squeeze(1) for part in self._parts(logits)], dim=1
        ).numpy()

        def loss(free: Floats) -> tuple[float, Floats]:
            # The uniform part has the remaining weight: no equality constraint.
            mixed = np.maximum(true[:, 2] + (true[:, :2] - true[:, 2:]) @ free, 1e-300)
            slope = (true[:, :2] - true[:, 2:]) / mixed[:, None]
            if share is not None:
                return -float(share @ np.log(mixed)), -(share @ slope)
            return -float(np.log(mixed).mean()), -slope.mean(axis=0)

        # Start inside the simplex: in a corner an underflowed likelihood has no slope.
        found = optimize.minimize(
            loss,
            np.array([0.8, 0.1]),
            jac=True,
            method="SLSQP",
            bounds=[(0, 1), (0, 1)],
            constraints=optimize.LinearConstraint(np.ones((1, 2)), ub=1),
            options={"ftol": 1e-12, "maxiter": 200},
        )
        corners = [np.array([1.0, 0.0]), np.array([0.0, 1.0])]
        scaled, plain = min([found.x.clip(0, 1), *corners], key=lambda w: loss(w)[0])
        self.weights = (float(scaled), float(plain), max(0.0, 1.0 - float(scaled + plain)))
        self.converged = converged and bool(found.success)

    def _apply(self, logits: Tensor) -> Tensor:
        mixed = sum(
            (w * part for w, part in zip(self.weights, self._parts(logits), strict=True)),
            start=torch.zeros_like(logits),
        )
        return mixed / mixed.sum(1, keepdim=True)

    def _parts(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        uniform = torch.full_like(logits, 1 / logits.shape[1])
        return torch.softmax(logits / self.temperature, 1), torch.softmax(logits, 1), uniform


def best_temperature(
    logits: Tensor, labels: Tensor, weights: Tensor | None = None
) -> tuple[float, bool]:
    """The T in [1e-8, 1e8] with the least NLL, and whether NLL has a minimum there."""
    gaps = logits - logits.amax(1, keepdim=True)
    true = gaps.gather(1, labels[:, None])
    if not bool(true.any()):
        return _ranked_right_temperature(gaps, weights), False
    blocks = gaps.split(rows_at_once(gaps))
    samples = float(len(gaps))
    shares: Sequence[Tensor | None] = [None] * len(blocks)
    if weights is not None:
        samples, shares = float(weights.sum()), weights.split(rows_at_once(gaps))
        true = weights @ true
    total = float(true.sum())

    def within(block: Tensor, weight: Tensor | None, inverse: float) -> float:
        expected = torch.softmax(block * inverse, 1) * block
        return float(expected.sum() if weight is None else weight @ expected.sum(1))

    def slope(log_inverse: float) -> float:
        """dNLL/d(1/T), which increases with 1/T."""
        inverse = math.exp(log_inverse)
        pieces = zip(blocks, shares, strict=True)
        expected = sum(within(block, weight, inverse) for block, weight in pieces)
        return (expected - total) / samples

    near, far = 0.0, 0.5 if slope(0.0) < 0 else -0.5
    bound = MIN_TEMPERATURE if far > 0 else MAX_TEMPERATURE
    limit = -math.log(bound)
    while slope(far) * far < 0:
        if far == limit:
            return bound, False
        near, far = far, math.copysign(min(abs(3 * far), abs(limit)), limit)
    root = optimize.brentq(slope, near, far, xtol=1e-10)
    return min(max(math.exp(-root), MIN_TEMPERATURE), MAX_TEMPERATURE), True


def _ranked_right_temperature(gaps: Tensor, weights: Tensor | None = None) -> float:
    """T at which NLL is 1/(N+1) above its limit for T → 0, or 1 if it is nearer at T = 1."""
    ties = (gaps == 0).sum(1).to(gaps.dtype)
    samples = len(gaps) if weights is None else float(weights.sum())
    target = 1 / (samples + 1)

    def excess(log_inverse: float) -> float:
        losses = ((gaps * math.exp(log_inverse)).exp().sum(1) / ties).log()
        mean = losses.mean() if weights is None else weights @ losses / samples
        return float(mean) - target

    limit = -math.log(MIN_TEMPERATURE)
    if excess(0.0) <= 0:
        return 1.0
    if excess(limit) >= 0:
        return MIN_TEMPERATURE
    return math.exp(-optimize.brentq(excess, 0.0, limit, xtol=1e-10))
