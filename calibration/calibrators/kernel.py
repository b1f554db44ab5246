"""Kernel regression of the log-odds (Nadaraya 1964, Watson 1964)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d
from scipy.special import expit

from calibration.calibrators.calibrator import CALIBRATORS, Floats
from calibration.calibrators.isotonic import Curve
from calibration.calibrators.one_vs_rest import OneVsRest, Score

# Beyond ±40 a probability rounds to 0 or 1 in float64.
_LIMIT, _SPACING = 40.0, 0.05
GRID = np.linspace(-_LIMIT, _LIMIT, round(2 * _LIMIT / _SPACING) + 1)


@CALIBRATORS.register("kernel")
class Kernel(OneVsRest[Curve]):
    """(Σ wᵢ tᵢ + p) / (Σ wᵢ + 1), wᵢ = exp(−(s − sᵢ)²/2h²), per class.

    s are log-odds, cut off at ±40, and t the targets; p, the network's own probability,
    counts as one sample more, so that nothing changes where there are no data. The
    bandwidth is 1.06 σ N^(−1/5) (Silverman 1986), σ the standard deviation of s. Sums are
    taken on a grid of spacing 0.05, which h is never below.
    """

    description = "Gaussian kernel regression of the log-odds, one-vs-rest"
    scaling = False
    fast = True

    def _fit_map(self, score: Score, target: Floats) -> Curve:
        s = score.log_odds.clip(-_LIMIT, _LIMIT)
        width = max(1.06 * float(s.std()) * len(s) ** -0.2, _SPACING)
        position = (s + _LIMIT) / _SPACING
        left = np.minimum(position.astype(int), len(GRID) - 2)
        right_share = position - left
        weights = _smooth(left, right_share, np.ones_like(s), width)
        ones = _smooth(left, right_share, target, width)
        return Curve(GRID, (ones + expit(GRID)) / (weights + 1))

    def _apply_map(self, fitted: Curve, score: Score) -> Floats:
        return fitted(score.log_odds)


def _smooth(left: NDArray[np.int64], right_share: Floats, value: Floats, width: float) -> Floats:
    """Σ wᵢ valueᵢ at the grid, each sample shared between the two points around it."""
    mass = np.zeros(len(GRID))
    mass += np.bincount(left, weights=(1 - right_share) * value, minlength=len(GRID))
    mass += np.bincount(left + 1, weights=right_share * value, minlength=len(GRID))
    smooth: Floats = gaussian_filter1d(mass, width / _SPACING, mode="constant", truncate=8.0)
    # The filter's weights sum to 1; the kernel is 1 at its centre.
    return smooth * math.sqrt(2 * math.pi) * width / _SPACING
