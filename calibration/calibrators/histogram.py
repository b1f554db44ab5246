"""Binning maps: histograms of equal width or mass, and scaling-binning."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from calibration.calibrators.calibrator import CALIBRATORS, Floats
from calibration.calibrators.logistic import shrunk_logistic_regression
from calibration.calibrators.one_vs_rest import OneVsRest, Score
from calibration.calibrators.platt import PlattLogits, platt_features
from calibration.complexity import CalibratorComplexity

BINS = 15
RANK_ROUNDING = 1e-6
"""Tolerance for sums of weights: those of scaled integers are then ranks again."""


@dataclass(frozen=True)
class StepFunction:
    """A step function: ``values`` (M,) between the inner ``edges`` (M−1,).

    An edge belongs to the step to its left.
    """

    edges: Floats
    values: Floats

    def __call__(self, at: Floats) -> Floats:
        """The values at ``at``; where the value is NaN, ``at`` itself."""
        found = self.values[np.searchsorted(self.edges, at)]
        return np.where(np.isnan(found), at, found)


@dataclass(frozen=True)
class ScaledBins:
    """Platt scaling with parameters ``theta``, then bins."""

    theta: Floats
    bins: StepFunction


def bin_means(x: Floats, y: Floats, edges: Floats, weights: Floats | None = None) -> StepFunction:
    """The mean y of every bin, NaN where it is empty."""
    bins, size = np.searchsorted(edges, x), len(edges) + 1
    values = y if weights is None else weights * y
    count = np.bincount(bins, weights=weights, minlength=size)
    total = np.bincount(bins, weights=values, minlength=size)
    return StepFunction(edges, np.where(count > 0, total / np.where(count > 0, count, 1), np.nan))


def equal_mass_edges(ordered: Floats, bins: int, weights: Floats | None = None) -> Floats:
    """Inner edges that split ascending values by rank into ``bins`` parts.

    An edge is the largest value to its left; within a group of ties it moves behind them, and
    bins left empty are dropped. With ``weights`` the ranks are cumulative weights.
    """
    numbers = np.arange(1, bins)
    if weights is None:
        last = len(ordered) * numbers // bins - 1
    else:
        summed = weights.cumsum()
        ranks = np.floor(summed[-1] * numbers / bins + RANK_ROUNDING)
        last = np.searchsorted(summed, ranks[ranks > 0] - RANK_ROUNDING)
    values = np.unique(ordered[last[last >= 0]])
    edges: Floats = values[values < ordered[-1]]
    return edges


def _ascending(x: Floats, weights: Floats | None) -> tuple[Floats, int, Floats | None]:
    """The arguments of ``equal_mass_edges`` from values in any order."""
    if weights is None:
        return np.sort(x), BINS, None
    order = np.argsort(x, kind="stable")
    return x[order], BINS, weights[order]


@CALIBRATORS.register("histogram_width")
class HistogramWidth(OneVsRest[StepFunction]):
    """The frequency of each class in 15 bins of equal width (Zadrozny and Elkan 2001).

    Probabilities in a bin that was empty during fitting are left unchanged.
    """

    description = "histogram binning, equal width, one-vs-rest (Zadrozny and Elkan 2001)"
    complexity = CalibratorComplexity.PIECES
    scaling = False
    fast = True
    weighted = True

    def _fit_map(self, score: Score, target: Floats) -> StepFunction:
        return bin_means(score.p, target, np.arange(1, BINS) / BINS, score.weights)

    def _apply_map(self, fitted: StepFunction, score: Score) -> Floats:
        return fitted(score.p)


@CALIBRATORS.register("histogram_mass")
class HistogramMass(OneVsRest[StepFunction]):
    """The frequency of each class in 15 bins of equal mass (Zadrozny and Elkan 2001)."""

    description = "histogram binning, equal mass, one-vs-rest (Zadrozny and Elkan 2001)"
    complexity = CalibratorComplexity.PIECES
    scaling = False
    fast = True
    weighted = True

    def _fit_map(self, score: Score, target: Floats) -> StepFunction:
        edges = equal_mass_edges(*_ascending(score.p, score.weights))
        return bin_means(score.p, target, edges, score.weights)

    def _apply_map(self, fitted: StepFunction, score: Score) -> Floats:
        return fitted(score.p)


@CALIBRATORS.register("scaling_binning")
class ScalingBinning(OneVsRest[ScaledBins]):
    """Platt scaling, then its mean in each of 15 bins of equal mass (Kumar et al. 2019).

    The output takes few values, like a histogram's, but with the noise of the scaling only.
    All rows are used for the scaling, the bins and their means; the paper splits them.
    """

    description = "scaling-binning: Platt scaling averaged in bins (Kumar et al. 2019)"
    complexity = CalibratorComplexity.PIECES
    scaling = False
    fast = True
    weighted = True

    def _fit_map(self, score: Score, target: Floats) -> ScaledBins:
        theta, converged = shrunk_logistic_regression(
            platt_features(score), target, np.array(PlattLogits.unchanged), score.weights
        )
        self.converged = self.converged and converged
        scaled = expit(theta @ platt_features(score))
        edges = equal_mass_edges(*_ascending(scaled, score.weights))
        return ScaledBins(theta, bin_means(scaled, scaled, edges, score.weights))

    def _apply_map(self, fitted: ScaledBins, score: Score) -> Floats:
        return fitted.bins(expit(fitted.theta @ platt_features(score)))
