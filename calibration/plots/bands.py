"""The random variation of a bin's accuracy: around itself, and around calibration."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from calibration.metrics.floor import design_effects

_Floats = NDArray[np.float64]


def wilson_interval(
    successes: _Floats, trials: _Floats, effect: _Floats | float = 1.0
) -> tuple[_Floats, _Floats]:
    """95 % interval of a proportion (Wilson 1927).

    If groups raise its variance by a factor ``effect``, the number of trials is divided by it
    (Kish 1965).
    """
    z = float(stats.norm.ppf(0.975))
    share, trials = successes / trials, trials / effect
    centre = (share + z**2 / (2 * trials)) / (1 + z**2 / trials)
    spread = z * np.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2))
    half = spread / (1 + z**2 / trials)
    # At 0 and 1 a bound equals the share; rounding must not move it to the other side.
    return np.minimum(centre - half, share), np.maximum(centre + half, share)


def noise_band(
    confidence: _Floats, count: _Floats, effect: _Floats | float = 1.0
) -> tuple[_Floats, _Floats]:
    """The range of bin accuracies in 95 % of draws from a calibrated model.

    Confidences in a bin are taken as equal to their mean; the true variance of an outcome is
    smaller, by less than the squared bin width. If groups raise the variance by a factor
    ``effect``, the band is wider by its square root, like the noise floor.
    """
    level = np.clip(confidence, 0, 1)
    calibrated, wider = stats.binom(count, level), np.sqrt(effect)
    low, high = (calibrated.ppf(tail) / count for tail in (0.025, 0.975))
    if np.all(wider == 1):
        return low, high
    low, high = (np.clip(level + wider * (end - level), 0, 1) for end in (low, high))
    return low, high


def group_effects(confidence: Tensor, correct: Tensor, groups: Tensor | None, bins: int) -> _Floats:
    """The factor by which groups raise the variance of each bin's accuracy; 1 without groups."""
    if groups is None:
        return np.ones(bins)
    found = design_effects(confidence.double(), correct, groups, bins)
    return np.asarray(found.cpu().numpy(), dtype=np.float64)
