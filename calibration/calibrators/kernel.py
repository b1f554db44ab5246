"""Kernel regression of the log-odds (Nadaraya 1964, Watson 1964)."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.ndimage import gaussian_filter1d
from scipy.special import expit
from torch import Tensor

from calibration.calibrators.calibrator import CALIBRATORS, Floats
from calibration.calibrators.isotonic import Curve
from calibration.calibrators.one_vs_rest import OneVsRest, Score, scores, targets

# Beyond ±40 a probability rounds to 0 or 1 in float64.
_LIMIT, _SPACING = 40.0, 0.05
GRID = np.linspace(-_LIMIT, _LIMIT, round(2 * _LIMIT / _SPACING) + 1)
BANDWIDTHS = _SPACING * 2.0 ** np.arange(7, -0.5, -0.5)
"""From 6.4 down to the grid spacing, by factors of √2."""
# Twice the grid, so that circular sums do not wrap around.
_LENGTH = next_fast_len(2 * len(GRID), real=True)
# Sums by Fourier transform are accurate to about this.
_LEAST = 1e-12


@CALIBRATORS.register("kernel")
class Kernel(OneVsRest[Curve]):
    """(Σ wᵢ tᵢ + p) / (Σ wᵢ + 1), wᵢ = exp(−(s − sᵢ)²/2h²), per class.

    Kernel regression (Nadaraya 1964, Watson 1964). s are log-odds, clipped to ±40, and t the
    targets; p, the network's own probability, counts as one more sample, so that nothing changes
    where there is no data. The bandwidth h is the one of 15 values from 0.05 to 6.4, but not
    above the largest standard deviation of s, with the largest leave-one-out likelihood, summed
    over classes: a single class may have too few samples to choose. Sums are computed on a grid
    of spacing 0.05.
    """

    description = "Gaussian kernel regression of the log-odds, one-vs-rest"
    scaling = False
    fast = True
    version = 2

    bandwidth: float

    def _choose(self, logits: Tensor, labels: Tensor) -> None:
        likelihood, spread = np.zeros(len(BANDWIDTHS)), 0.0
        for score, target in zip(scores(logits), targets(labels, logits.shape[1]), strict=True):
            likelihood += leave_one_out(score.log_odds, target)
            spread = max(spread, float(score.log_odds.clip(-_LIMIT, _LIMIT).std()))
        allowed = max(spread, _SPACING) >= BANDWIDTHS
        self.bandwidth = float(BANDWIDTHS[allowed][np.argmax(likelihood[allowed])])

    def _fit_map(self, score: Score, target: Floats) -> Curve:
        position = (score.log_odds.clip(-_LIMIT, _LIMIT) + _LIMIT) / _SPACING
        left = np.minimum(position.astype(int), len(GRID) - 2)
        right_share = position - left
        weights = _smooth(left, right_share, np.ones_like(target), self.bandwidth)
        ones = _smooth(left, right_share, target, self.bandwidth)
        return Curve(GRID, (ones + expit(GRID)) / (weights + 1))

    def _apply_map(self, fitted: Curve, score: Score) -> Floats:
        return fitted(score.log_odds)


def leave_one_out(s: Floats, target: Floats) -> Floats:
    """The log-likelihood of all samples for every bandwidth, each left out of its own sums.

    Samples are moved to the nearest grid point. A sample has weight 1 at its own position, as
    p does: without it, (Σ w t + p)/(Σ w + 1) becomes (Σ w t − tᵢ + p)/Σ w.
    """
    nearest = np.rint((s.clip(-_LIMIT, _LIMIT) + _LIMIT) / _SPACING).astype(int)
    met, where = np.unique(nearest, return_inverse=True)
    count = np.bincount(where).astype(np.float64)
    positive = np.bincount(where, weights=target)
    mass = np.zeros((2, len(GRID)))
    mass[:, met] = count, positive
    smooth = irfft(rfft(mass, _LENGTH) * _transforms()[:, None], _LENGTH)[..., met]
    weights, ones = smooth[:, 0].clip(1), smooth[:, 1] + expit(GRID[met])
    of_ones = ((ones - 1) / weights).clip(_LEAST, 1)
    of_zeros = (1 - ones / weights).clip(_LEAST, 1)
    likelihood: Floats = np.log(of_ones) @ positive + np.log(of_zeros) @ (count - positive)
    return likelihood


@lru_cache(maxsize=1)
def _transforms() -> Floats:
    """The Fourier transform of the kernel of every bandwidth, (bandwidths, frequencies)."""
    # An even function on a circle: the shorter distance to 0.
    steps = np.minimum(np.arange(_LENGTH), _LENGTH - np.arange(_LENGTH))
    distance = _SPACING * np.where(steps < len(GRID), steps, np.inf)
    transforms: Floats = rfft(np.exp(-0.5 * (distance / BANDWIDTHS[:, None]) ** 2)).real
    return transforms


def _smooth(left: NDArray[np.int64], right_share: Floats, value: Floats, width: float) -> Floats:
    """Σ wᵢ valueᵢ on the grid, with each sample split between the two nearest points."""
    mass = np.zeros(len(GRID))
    mass += np.bincount(left, weights=(1 - right_share) * value, minlength=len(GRID))
    mass += np.bincount(left + 1, weights=right_share * value, minlength=len(GRID))
    smooth: Floats = gaussian_filter1d(mass, width / _SPACING, mode="constant", truncate=8.0)
    # The filter's weights sum to 1; the kernel is 1 at its centre.
    return smooth * math.sqrt(2 * math.pi) * width / _SPACING
