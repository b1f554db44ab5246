"""Isotonic regression, plain, centred and of the top label."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import isotonic_regression
from torch import Tensor

from calibration.calibrators.calibrator import CALIBRATORS, Calibrator, Floats
from calibration.calibrators.one_vs_rest import OneVsRest, Score
from calibration.complexity import CalibratorComplexity

RESOLUTION = 1e-6


@dataclass(frozen=True)
class Curve:
    """A function through the points (x, y), straight between and constant outside them."""

    x: Floats
    y: Floats

    def __call__(self, at: Floats) -> Floats:
        """The function's values at ``at``."""
        return np.interp(at, self.x, self.y)


@dataclass(frozen=True)
class Steps:
    """The non-decreasing fit of least squared error, one entry per level stretch."""

    level: Floats
    first: Floats
    last: Floats
    mean: Floats
    """The smallest, the largest and the mean x of the stretch."""


def isotonic_steps(x: Floats, y: Floats) -> Steps:
    """Isotonic regression of y on probabilities x by pooling adjacent violators.

    x is rounded down to multiples of 1e-6 and tied x are pooled first. Networks compute in
    single precision; isotonic regression would make steps to 0 and 1 out of the noise beyond.
    """
    distinct, where, count = np.unique(
        np.floor(x / RESOLUTION) * RESOLUTION, return_inverse=True, return_counts=True
    )
    means = np.bincount(where, weights=y) / count
    fitted = isotonic_regression(means, weights=count)
    starts, ends = fitted.blocks[:-1], fitted.blocks[1:] - 1
    return Steps(
        level=fitted.x[starts],
        first=distinct[starts],
        last=distinct[ends],
        mean=np.add.reduceat(distinct * count, starts) / np.add.reduceat(count, starts),
    )


def isotonic_curve(x: Floats, y: Floats) -> Curve:
    """The curve through both ends of every stretch."""
    steps = isotonic_steps(x, y)
    return Curve(np.stack([steps.first, steps.last], 1).ravel(), steps.level.repeat(2))


def centred_isotonic_curve(x: Floats, y: Floats) -> Curve:
    """The curve through every stretch's mean x.

    Stretches at 0 and 1 keep both ends: there the true curve can be level.
    """
    steps = isotonic_steps(x, y)
    bound = (steps.level <= 0) | (steps.level >= 1)
    left = np.where(bound, steps.first, steps.mean)
    right = np.where(bound, steps.last, steps.mean)
    return Curve(np.stack([left, right], 1).ravel(), steps.level.repeat(2))


@CALIBRATORS.register("isotonic")
class Isotonic(OneVsRest[Curve]):
    """Isotonic regression of each class's probability (Zadrozny and Elkan 2002)."""

    description = "isotonic regression, one-vs-rest (Zadrozny and Elkan 2002)"
    scaling = False
    fast = True

    def _fit_map(self, score: Score, target: Floats) -> Curve:
        return isotonic_curve(score.p, target)

    def _apply_map(self, fitted: Curve, score: Score) -> Floats:
        return fitted(score.p)


@CALIBRATORS.register("centred_isotonic")
class CentredIsotonic(OneVsRest[Curve]):
    """Centred isotonic regression: no level stretches inside (Oron and Flournoy 2017)."""

    description = "centred isotonic regression, one-vs-rest (Oron and Flournoy 2017)"
    scaling = False
    fast = True

    def _fit_map(self, score: Score, target: Floats) -> Curve:
        return centred_isotonic_curve(score.p, target)

    def _apply_map(self, fitted: Curve, score: Score) -> Floats:
        return fitted(score.p)


@CALIBRATORS.register("isotonic_top_label")
class IsotonicTopLabel(Calibrator):
    """Isotonic regression of "the prediction is right" on its confidence.

    This is the form used as a baseline by Sanguin et al. (2024). The call gives the
    confidence (N,) of the predicted class; below 1/K it is no maximum of any row.
    """

    description = "isotonic regression of the predicted class's confidence"
    complexity = CalibratorComplexity.FREE
    scaling = False
    keeps_argmax = True
    fast = True
    top_label = True

    curve: Curve

    def _fit(self, logits: Tensor, labels: Tensor) -> None:
        confidence, predicted = torch.softmax(logits, 1).max(1)
        correct = (predicted == labels).to(torch.float64)
        self.curve = isotonic_curve(confidence.numpy(), correct.numpy())

    def _apply(self, logits: Tensor) -> Tensor:
        return torch.from_numpy(self.curve(torch.softmax(logits, 1).amax(1).numpy()))
