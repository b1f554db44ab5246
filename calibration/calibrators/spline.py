"""A smoothing spline of the log-odds (after Lucena 2018)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from calibration.calibrators.calibrator import CALIBRATORS, Floats
from calibration.calibrators.logistic import akaike, logistic_regression
from calibration.calibrators.natural_spline import NaturalSplines
from calibration.calibrators.one_vs_rest import OneVsRest, Score
from calibration.complexity import CalibratorComplexity

_KNOTS = 10
SMOOTHINGS = np.logspace(1, -9, 6)


@dataclass(frozen=True)
class SplineMap:
    """A natural spline of the log-odds, given by its values at the knots."""

    knots: Floats
    values: Floats


@CALIBRATORS.register("spline")
class Spline(OneVsRest[SplineMap]):
    """σ(a·s + b + f(s)) per class, f a natural cubic spline of the log-odds s.

    f has 10 knots, at even quantiles when the class and the rest weigh the same. Mean NLL +
    λ ∫ f″² is minimised, a and b with the prior of ``platt_logits``; λ is chosen of six
    values from 1e-9 to 10 (s in units of its range) by Akaike's criterion.
    """

    description = "smoothing spline of the log-odds, one-vs-rest (after Lucena 2018)"
    complexity = CalibratorComplexity.PIECES
    scaling = True
    fast = False

    def _fit_map(self, score: Score, target: Floats) -> SplineMap:
        splines = NaturalSplines(balanced_quantiles(score.log_odds, target, _KNOTS))
        # Straight lines, then curves of unit roughness: the penalty is diagonal.
        curves = splines.by_roughness()
        features = curves.T @ splines(score.log_odds).T
        size = len(features)
        unchanged = np.eye(size)[0]
        fits = []
        for smoothing in SMOOTHINGS:
            penalty = np.diag([1 / len(target)] * 2 + [2 * smoothing] * (size - 2))
            theta, converged = logistic_regression(features, target, penalty, unchanged)
            fits.append((akaike(features, target, penalty, theta), converged, theta))
        _, converged, theta = min(fits, key=lambda fit: fit[0])
        self.converged = self.converged and converged
        return SplineMap(splines.knots, curves @ theta)

    def _apply_map(self, fitted: SplineMap, score: Score) -> Floats:
        return expit(NaturalSplines(fitted.knots)(score.log_odds) @ fitted.values)


def balanced_quantiles(s: Floats, target: Floats, number: int) -> Floats:
    """At most ``number`` and at least 2 ascending quantiles, classes weighing the same."""
    order = np.argsort(s)
    positives = target.sum()
    weight = np.where(target > 0, 1 / max(positives, 1), 1 / max(len(s) - positives, 1))[order]
    share = (np.cumsum(weight) - weight / 2) / weight.sum()
    at = np.linspace(0, 1, number)
    knots: Floats = np.unique(s[order][np.searchsorted(share, at[1:-1]).clip(0, len(s) - 1)])
    knots = np.unique(np.concatenate([[s.min()], knots, [s.max()]]))
    # Knots closer than this to their neighbour would make the spline's equations singular.
    apart = np.concatenate([[True], np.diff(knots) > 1e-6 * (1 + knots[-1] - knots[0])])
    knots = knots[apart]
    return knots if len(knots) > 1 else knots[0] + np.array([-1.0, 1.0])
