"""Isotonic regression: plain, centred and for the top label."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.optimize import isotonic_regression
from scipy.special import expit
from torch import Tensor

from calibration.calibrators.calibrator import CALIBRATORS, Calibrator, Floats
from calibration.calibrators.one_vs_rest import OneVsRest, Score
from calibration.complexity import CalibratorComplexity

POOLING_WIDTH = 2.0**-18
"""Log-odds closer than this count as equal: float32 logits resolve no finer.

Float32 numbers z with 16 ≤ |z| < 32, the range of the largest logits of trained networks, are
2⁻¹⁹ apart: rounding alone leaves each off by up to 2⁻²⁰. Log-odds z_k − log Σ_{j≠k} exp z_j
are then off by up to 2⁻¹⁹, as log Σ exp changes by at most the largest change of a term. Two
rows with equal log-odds may therefore appear 2⁻¹⁸ ≈ 3.8e-6 apart. In p that is a width of
p(1 − p)·2⁻¹⁸: small probabilities are known to a relative, not an absolute, precision.
"""
PRIOR_ROWS = 2.0
"""The weight of the class frequency in every level of ``shrunk``."""


@dataclass(frozen=True)
class Curve:
    """A function through the points (x, y), linear between and constant outside them."""

    x: Floats
    y: Floats

    def __call__(self, at: Floats) -> Floats:
        """The function's values at ``at``."""
        return np.interp(at, self.x, self.y)


@dataclass(frozen=True)
class Steps:
    """A non-decreasing step function, with one entry per constant stretch."""

    level: Floats
    count: Floats
    """The number of samples in the stretch, or their weight."""
    total: Floats
    """The sum of their y."""
    first: Floats
    last: Floats
    mean: Floats
    """The smallest, the largest and the mean x of the stretch."""


def isotonic_steps(log_odds: Floats, y: Floats, weights: Floats | None = None) -> Steps:
    """Isotonic regression of y on probabilities x = σ(log-odds) by pooling adjacent violators.

    Log-odds are rounded down to multiples of ``POOLING_WIDTH`` and tied x are pooled first:
    otherwise isotonic regression would turn rounding errors into steps to 0 and 1.
    """
    x = expit(np.floor(log_odds / POOLING_WIDTH) * POOLING_WIDTH)
    distinct, where = np.unique(x, return_inverse=True)
    count = np.bincount(where, weights=weights).astype(np.float64)
    total = np.bincount(where, weights=y if weights is None else weights * y).astype(np.float64)
    each = Steps(total / count, count, total, distinct, distinct, distinct)
    return _pooled(each, weights=each.count)


def shrunk(steps: Steps, frequency: float) -> Steps:
    """The steps with every level shrunk towards the class frequency π, still monotone.

    A stretch of n samples, k of them of the class, gets (k + 2π)/(n + 2): no level is 0 or 1,
    and levels of few samples move most. Stretches that are then out of order are pooled
    with weights n + 2, so that the result minimises Σ n (m − k/n)² + 2 (m − π)² over all
    non-decreasing levels m.
    """
    weights = steps.count + PRIOR_ROWS
    level = (steps.total + PRIOR_ROWS * frequency) / weights
    return _pooled(replace(steps, level=level), weights=weights)


def _pooled(steps: Steps, weights: Floats) -> Steps:
    """The steps with levels made non-decreasing, by weighted least squares."""
    fitted = isotonic_regression(steps.level, weights=weights)
    starts, ends = fitted.blocks[:-1], fitted.blocks[1:] - 1
    count = np.add.reduceat(steps.count, starts)
    return Steps(
        level=fitted.x[starts],
        count=count,
        total=np.add.reduceat(steps.total, starts),
        first=steps.first[starts],
        last=steps.last[ends],
        mean=np.add.reduceat(steps.mean * steps.count, starts) / count,
    )


def class_frequency(target: Floats, classes: int, weights: Floats | None = None) -> float:
    """Laplace's estimate (k + 1)/(N + K): never 0 or 1, and over all classes it sums to 1."""
    if weights is not None:
        return float((weights @ target + 1) / (weights.sum() + classes))
    return float((target.sum() + 1) / (len(target) + classes))


def isotonic_curve(steps: Steps) -> Curve:
    """The curve through both ends of every stretch."""
    return Curve(np.stack([steps.first, steps.last], 1).ravel(), steps.level.repeat(2))


def centred_isotonic_curve(steps: Steps) -> Curve:
    """The curve through every stretch's mean x.

    Stretches where y is always 0 or always 1 keep both ends: the true curve can be flat there.
    """
    # Sums of weights have rounding errors.
    bound = (steps.total <= 0) | (steps.total >= steps.count * (1 - 1e-12))
    left = np.where(bound, steps.first, steps.mean)
    right = np.where(bound, steps.last, steps.mean)
    return Curve(np.stack([left, right], 1).ravel(), steps.level.repeat(2))


@CALIBRATORS.register("isotonic")
class Isotonic(OneVsRest[Curve]):
    """Isotonic regression of each class's probability (Zadrozny and Elkan 2002), shrunk.

    Plain isotonic regression gives 0 wherever the class did not occur, and one such row in new
    data makes the NLL infinite: levels are shrunk towards the class frequency (``shrunk``).
    """

    description = "isotonic regression, one-vs-rest, shrunk (Zadrozny and Elkan 2002)"
    scaling = False
    fast = True
    weighted = True
    version = 2

    def _fit_map(self, score: Score, target: Floats) -> Curve:
        return isotonic_curve(_shrunk_steps(score, target))

    def _apply_map(self, fitted: Curve, score: Score) -> Floats:
        return fitted(score.p)


@CALIBRATORS.register("centred_isotonic")
class CentredIsotonic(OneVsRest[Curve]):
    """Centred isotonic regression: no flat stretches inside (Oron and Flournoy 2017).

    Its levels are shrunk like those of ``isotonic``.
    """

    description = "centred isotonic regression, one-vs-rest, shrunk (Oron and Flournoy 2017)"
    scaling = False
    fast = True
    weighted = True
    version = 2

    def _fit_map(self, score: Score, target: Floats) -> Curve:
        return centred_isotonic_curve(_shrunk_steps(score, target))

    def _apply_map(self, fitted: Curve, score: Score) -> Floats:
        return fitted(score.p)


@CALIBRATORS.register("isotonic_top_label")
class IsotonicTopLabel(Calibrator):
    """Isotonic regression of "the prediction is right" on its confidence.

    This is the form used as a baseline by Sanguin et al. (2024). The call gives the
    confidence (N,) of the predicted class; below 1/K it cannot be the maximum of any row.
    """

    description = "isotonic regression of the predicted class's confidence"
    complexity = CalibratorComplexity.FREE
    scaling = False
    keeps_argmax = True
    fast = True
    top_label = True
    weighted = True
    version = 2

    curve: Curve

    def _fit(self, logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> None:
        top = logits.argmax(1, keepdim=True)
        correct = (top.squeeze(1) == labels).to(torch.float64)
        others = logits.scatter(1, top, -torch.inf).logsumexp(1)
        log_odds = logits.gather(1, top).squeeze(1) - others
        counted = None if weights is None else weights.numpy()
        steps = isotonic_steps(log_odds.numpy(), correct.numpy(), counted)
        self.curve = isotonic_curve(steps)

    def _apply(self, logits: Tensor) -> Tensor:
        return torch.from_numpy(self.curve(torch.softmax(logits, 1).amax(1).numpy()))


def _shrunk_steps(score: Score, target: Floats) -> Steps:
    frequency = class_frequency(target, score.classes, score.weights)
    return shrunk(isotonic_steps(score.log_odds, target, score.weights), frequency)
