"""Natural cubic splines: of the log-odds, and of the cumulative calibration gap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.interpolate import CubicSpline

from calibration.post_hoc.calibrator import CALIBRATORS
from calibration.post_hoc.isotonic import Curve
from calibration.post_hoc.logistic import akaike, logistic_regression, sigmoid
from calibration.post_hoc.one_vs_rest import OneVsRest, Score


KNOTS = 10
SMOOTHINGS = np.logspace(1, -9, 6)
CURVE_POINTS = 1001


class NaturalBasis:
    """The natural cubic splines that are 1 at one of the knots and 0 at the others.

    A curve's coefficients are its values at the knots. Outside them it goes on straight.
    """

    def __init__(self, knots: np.ndarray) -> None:
        self.knots = knots
        self.cardinal = CubicSpline(knots, np.eye(len(knots)), bc_type="natural")

    def __call__(self, at: np.ndarray) -> np.ndarray:
        """The basis at ``at``, (N, knots)."""
        inside = at.clip(self.knots[0], self.knots[-1])
        outside = (at - inside)[:, None]
        return self.cardinal(inside) + outside * self.cardinal(inside, 1)

    def slopes(self, at: np.ndarray) -> np.ndarray:
        """The basis' derivatives at ``at``, (N, knots)."""
        return self.cardinal(at.clip(self.knots[0], self.knots[-1]), 1)

    def roughness(self) -> np.ndarray:
        """∫ f″² as a quadratic form of the coefficients, in units of the knots' range."""
        second = self.cardinal(self.knots, 2)
        width = np.diff(self.knots)[:, None, None]
        left, right = second[:-1], second[1:]
        # f″ is straight between knots: its square integrates to h/3·(l² + lr + r²).
        cross = left[:, :, None] * right[:, None, :]
        square = left[:, :, None] * left[:, None, :] + right[:, :, None] * right[:, None, :]
        integral = (width / 3 * (square + (cross + cross.transpose(0, 2, 1)) / 2)).sum(axis=0)
        return integral * (self.knots[-1] - self.knots[0]) ** 3


@dataclass(frozen=True)
class SplineMap:
    """A natural spline of the log-odds, given by its values at the knots."""

    knots: np.ndarray
    values: np.ndarray


@CALIBRATORS.register("spline")
class Spline(OneVsRest[SplineMap]):
    """σ(f(s)) per class, f a natural cubic spline of the log-odds s (after Lucena 2018).

    f has 10 knots, at even quantiles when the class and the rest weigh the same. It minimises
    mean NLL + λ ∫ f″², λ of 1e-9…10 chosen by Akaike's criterion. The straight line through f's
    knots has a standard normal prior around "no change", which keeps the optimum finite.
    """

    description = "smoothing spline of the log-odds, one-vs-rest (after Lucena 2018)"
    scaling = True
    fast = False

    def _fit_map(self, score: Score, target: np.ndarray) -> SplineMap:
        knots = balanced_quantiles(score.log_odds, target, KNOTS)
        basis = NaturalBasis(knots)
        features = np.ascontiguousarray(basis(score.log_odds).T)
        roughness = basis.roughness()
        line = np.linalg.pinv(np.stack([knots, np.ones_like(knots)], axis=1))
        best, least = knots, np.inf
        for smoothing in SMOOTHINGS:
            penalty = smoothing * roughness + line.T @ line / len(target)
            values, converged = logistic_regression(features, target, penalty, centre=knots)
            criterion = akaike(features, target, penalty, values)
            if criterion < least:
                best, least, best_converged = values, criterion, converged
        self.converged = self.converged and best_converged
        return SplineMap(knots, best)

    def _apply_map(self, fitted: SplineMap, score: Score) -> np.ndarray:
        return sigmoid(NaturalBasis(fitted.knots)(score.log_odds) @ fitted.values)


def balanced_quantiles(s: np.ndarray, target: np.ndarray, number: int) -> np.ndarray:
    """At most ``number`` and at least 2 ascending quantiles, classes weighing the same."""
    order = np.argsort(s)
    positives = target.sum()
    weight = np.where(target > 0, 1 / max(positives, 1), 1 / max(len(s) - positives, 1))[order]
    share = (np.cumsum(weight) - weight / 2) / weight.sum()
    at = np.linspace(0, 1, number)
    knots = np.unique(s[order][np.searchsorted(share, at[1:-1]).clip(0, len(s) - 1)])
    knots = np.unique(np.concatenate([[s.min()], knots, [s.max()]]))
    # Knots closer than this to their neighbour would make the spline's equations singular.
    apart = np.concatenate([[True], np.diff(knots) > 1e-6 * (1 + knots[-1] - knots[0])])
    knots = knots[apart]
    return knots if len(knots) > 1 else knots[0] + np.array([-1.0, 1.0])


@CALIBRATORS.register("cdf_spline")
class CdfSpline(OneVsRest[Curve]):
    """p plus the slope of a spline through the cumulative gap (Gupta et al. 2021).

    With samples in ascending order of p, the cumulative sums of (target − p)/N against the
    fraction of samples are fitted by a natural cubic spline with 6 even knots, in least
    squares; its derivative is how far the class's frequency lies above p.
    """

    description = "spline of the cumulative gap (KS-spline), one-vs-rest (Gupta et al. 2021)"
    scaling = False
    fast = True

    def _fit_map(self, score: Score, target: np.ndarray) -> Curve:
        distinct, where, count = np.unique(score.p, return_inverse=True, return_counts=True)
        # Tied samples share their mean target, or their order would matter.
        gap = (np.bincount(where, weights=target) / count - distinct).repeat(count)
        fraction = np.linspace(0, 1, len(gap))
        basis = NaturalBasis(np.linspace(0, 1, 6))
        values = np.linalg.lstsq(basis(fraction), np.cumsum(gap) / len(gap), rcond=None)[0]
        slope = np.add.reduceat(basis.slopes(fraction) @ values, np.cumsum(count) - count) / count
        kept = np.unique(np.linspace(0, len(distinct) - 1, CURVE_POINTS).round().astype(int))
        return Curve(distinct[kept], slope[kept])

    def _apply_map(self, fitted: Curve, score: Score) -> np.ndarray:
        return score.p + fitted(score.p)
