"""Where does a series step from one level to another?"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

_QUARTER = 0.3186
"""The lower quartile of the absolute value of a standard normal."""
_ROUNDING = 1e-3


class ChangePoint(NamedTuple):
    """The most likely step of a series: the new level starts at ``place``.

    ``step`` is the second mean less the first; ``p`` is corrected over all places where the
    step could be, and NaN for fewer than three values.
    """

    place: int
    step: float
    p: float


def change_point(values: ArrayLike, *, least_deviation: float = 0.0) -> ChangePoint | None:
    """The split of a series with the largest t of two means, or None for fewer than two values.

    With normal errors that is the maximum-likelihood place of a single step (Hinkley, Biometrika
    57, 1970). The pooled standard deviation is taken to be at least ``least_deviation``. The
    p-value is Student's, two-sided with n − 2 degrees of freedom, times the n − 1 places
    (Bonferroni). Raises ``ValueError`` unless given a list of finite numbers.
    """
    series = _checked(values)
    n = len(series)
    if n < 2:
        return None
    first = np.arange(1, n)
    sums = np.cumsum(series)
    before, after = sums[:-1] / first, (sums[-1] - sums[:-1]) / (n - first)
    steps, weight = after - before, first * (n - first) / n
    within = np.maximum(((series - series.mean()) ** 2).sum() - steps**2 * weight, 0.0)
    variance = np.maximum(within / max(n - 2, 1), least_deviation**2)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.nan_to_num(np.abs(steps) * np.sqrt(weight / variance), nan=0.0, posinf=math.inf)
    best = int(np.argmax(t))
    p = math.nan
    if n > 2:
        p = min(1.0, (n - 1) * 2 * float(special.stdtr(n - 2, -t[best])))
    return ChangePoint(best + 1, float(steps[best]), p)


def change_points(values: ArrayLike, *, least_deviation: float = 0.0) -> list[int]:
    """Where the levels of a series start, besides the first: the best of all splits.

    Minimises squared residuals in units of the noise's variance plus 3 log n for every step, over
    all splits (dynamic programming; Jackson et al., IEEE Signal Processing Letters 12, 2005), so
    that a value that broke, was fixed and broke again shows three steps. The noise is estimated
    from the lower quartile of the differences of neighbours, which steps hardly change, and is at
    least ``least_deviation``. Raises ``ValueError`` unless given a list of finite numbers.
    """
    series = _checked(values)
    n = len(series)
    if n < 2:
        return []
    robust = float(np.quantile(np.abs(np.diff(series)), 0.25)) / (_QUARTER * math.sqrt(2))
    # Exact repetitions have no noise, but sums of squares are subject to rounding.
    noise = max(robust, least_deviation, _ROUNDING * float(np.ptp(series)))
    if noise == 0:
        return []
    scaled = (series - series[0]) / noise
    sums, squares = (np.concatenate([[0.0], np.cumsum(each)]) for each in (scaled, scaled**2))
    penalty = 3 * math.log(n)
    costs, last = [-penalty], [0]
    for end in range(1, n + 1):
        begin = np.arange(end)
        residual = squares[end] - squares[:end] - (sums[end] - sums[:end]) ** 2 / (end - begin)
        total = np.asarray(costs) + residual + penalty
        last.append(int(np.argmin(total)))
        costs.append(float(total[last[-1]]))
    found, end = [], last[n]
    while end > 0:
        found.append(end)
        end = last[end]
    return found[::-1]


def _checked(values: ArrayLike) -> NDArray[np.float64]:
    series = np.asarray(values, dtype=np.float64)
    if series.ndim != 1 or not np.isfinite(series).all():
        raise ValueError(f"values: found {values!r}; expected a list of finite numbers")
    return series
