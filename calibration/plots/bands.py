"""How far the accuracy of a bin varies by chance: around itself, and around calibration."""

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

    Where groups raise its variance by ``effect``, as many fewer trials count (Kish 1965).
    """
    z = float(stats.norm.ppf(0.975))
    share, trials = successes / trials, trials / effect
    centre = (share + z**2 / (2 * trials)) / (1 + z**2 / trials)
    spread = z * np.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2))
    half = spread / (1 + z**2 / trials)
    # At 0 and 1 the bounds equal the share; rounding must not put them on its other side.
    return np.minimum(centre - half, share), np.maximum(centre + half, share)


def noise_band(
    confidence: _Floats, count: _Floats, effect: _Floats | float = 1.0
) -> tuple[_Floats, _Floats]:
    """Where accuracies of bins would fall in 95 % of draws from a calibrated model.

    Within a bin confidences are taken as equal to their mean; the true variance of an outcome is
    smaller, by less than the squared width of a bin. Where groups raise the variance by
    ``effect``, the band is wider by its square root, as the noise floor is.
    """
    level = np.clip(confidence, 0, 1)
    calibrated, wider = stats.binom(count, level), np.sqrt(effect)
    low, high = (calibrated.ppf(tail) / count for tail in (0.025, 0.975))
    if np.all(wider == 1):
        return low, high
    low, high = (np.clip(level + wider * (end - level), 0, 1) for end in (low, high))
    return low, high


def group_effects(confidence: Tensor, correct: Tensor, groups: Tensor | None, bins: int) -> _Floats:
    """By how much groups raise the variance of each bin's accuracy; without any, 1."""
    if groups is None:
        return np.ones(bins)
    found = design_effects(confidence.double(), correct, groups, bins)
    return np.asarray(found.cpu().numpy(), dtype=np.float64)
