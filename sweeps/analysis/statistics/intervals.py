"""Confidence intervals of a mean over seeds, also for overlapping training sets.

Seeds that draw fresh data give independent values, and the mean of n of them has the
variance s²/n. Seeds that split the same rows differently train on overlapping sets: their values
are correlated, s² is too small, and adding seeds helps only up to a point. Nadeau and
Bengio ("Inference for the generalization error", Machine Learning 52, 2003) estimate the
variance of such a mean by s² (1/n + n_test / n_train); ``correlation_ratio`` is their
n_test / n_train, and 0 for independent draws.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special


def mean_interval(
    values: ArrayLike, *, correlation_ratio: float = 0.0, level: float = 0.95
) -> tuple[float, float]:
    """The interval mean ± t(n−1) · s · sqrt(1/n + ratio) of the values that are numbers.

    Fewer than two, or an infinite one, give (NaN, NaN). Raises ``ValueError`` for a negative
    ratio or a level outside (0, 1).
    """
    there = np.asarray(values, dtype=np.float64)
    there = there[~np.isnan(there)]
    testable = len(there) > 1 and bool(np.isfinite(there).all())
    deviation = there.std(ddof=1) if testable else np.nan
    half = float(
        half_width(deviation, len(there), correlation_ratio=correlation_ratio, level=level)
    )
    mean = float(there.mean()) if len(there) else np.nan
    return mean - half, mean + half


def half_width(
    deviation: ArrayLike,
    count: ArrayLike,
    *,
    correlation_ratio: ArrayLike = 0.0,
    level: float = 0.95,
) -> NDArray[np.float64]:
    """Half the width of ``mean_interval``, for many means at once; NaN for a count below 2."""
    if not 0 < level < 1:
        raise ValueError(f"level: found {level}, which must lie between 0 and 1, such as 0.95")
    n, ratio = np.asarray(count, dtype=np.float64), np.asarray(correlation_ratio)
    check_ratio(ratio)
    enough = np.where(n > 1, n, np.nan)
    quantile = special.stdtrit(enough - 1, (1 + level) / 2)  # 50 times as fast as stats.t
    spread = np.asarray(deviation, dtype=np.float64)
    return np.asarray(spread * quantile * np.sqrt(1 / enough + ratio), dtype=np.float64)


def check_ratio(ratio: NDArray[Any]) -> None:
    """Raise ``ValueError`` unless a correlation ratio is a number of at least 0."""
    if not np.all(ratio >= 0):
        raise ValueError(f"correlation_ratio: found {ratio}; it is n_test / n_train, or 0")
