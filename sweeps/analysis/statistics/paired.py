"""Is one method better than another? Paired over seeds, corrected for many questions."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from sweeps.analysis.statistics.crossed import NORMAL
from sweeps.analysis.statistics.intervals import check_ratio, half_width

_ROUNDING = 1e-12


class PairedTest(NamedTuple):
    """The test of ours − baseline over seeds: mean, interval, effect size and p-value.

    ``effect`` is d_z with Hedges' correction: the mean difference in standard deviations of
    the differences, times J(n−1) = Γ((n−1)/2) / (sqrt((n−1)/2) Γ((n−2)/2)), which removes its
    bias in small samples. Two pairs are too few for it: NaN.
    """

    difference: float
    low: float
    high: float
    effect: float
    t: float
    p: float
    pairs: int


def corrected_t_test(
    ours: ArrayLike,
    baseline: ArrayLike,
    *,
    correlation_ratio: float = 0.0,
    level: float = 0.95,
    least_deviation: float = 0.0,
) -> PairedTest:
    """The corrected resampled t-test (Nadeau and Bengio 2003) of paired values, two-sided.

    t = mean(d) / (s sqrt(1/n + ratio)) with n − 1 degrees of freedom, d = ours − baseline.
    With ratio 0 it is the ordinary paired t-test. Pairs with a NaN are omitted; fewer than two
    pairs have no p-value (NaN). Rounding differences count as none: if all are, t is 0 and p is
    1. If all are otherwise the same, their spread is unknown and there is no p-value: an error
    is a count, and two seeds often differ by the same number. With ``least_deviation`` s is taken
    to be no less than that, which gives such differences a p-value and makes no p-value smaller.
    An infinite value, such as the NLL of a class with probability 0, cannot be tested: p is NaN.
    Raises ``ValueError`` if the lengths differ, or the ratio or the deviation is negative.
    """
    first, second = np.asarray(ours, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(
            f"ours, baseline: found shapes {first.shape} and {second.shape}; "
            "they must be paired, one value per seed"
        )
    check_ratio(np.asarray(correlation_ratio))
    if not least_deviation >= 0:
        raise ValueError(f"least_deviation: found {least_deviation}; expected at least 0")
    there = ~(np.isnan(first) | np.isnan(second))
    first, second = first[there], second[there]
    n = len(first)
    if n < 2 or not (np.isfinite(first).all() and np.isfinite(second).all()):
        mean = float(first.mean()) - float(second.mean()) if n else math.nan
        return PairedTest(mean, math.nan, math.nan, math.nan, math.nan, math.nan, n)
    rounding = _ROUNDING * np.maximum(np.abs(first), np.abs(second))
    difference = first - second
    difference[np.abs(difference) <= rounding] = 0.0
    mean = float(difference.mean())
    deviation = max(float(difference.std(ddof=1)), least_deviation)
    if mean and deviation <= rounding.max():
        return PairedTest(mean, math.nan, math.nan, math.nan, math.nan, math.nan, n)
    half = float(half_width(deviation, n, correlation_ratio=correlation_ratio, level=level))
    d = mean / deviation if mean else 0.0
    t = d / math.sqrt(1 / n + correlation_ratio)
    p = float(2 * special.stdtr(n - 1, -abs(t)))
    return PairedTest(mean, mean - half, mean + half, _hedges(d, n), t, p, n)


def spread_test(ours: ArrayLike, baseline: ArrayLike, *, least_deviation: float = 0.0) -> float:
    """The p-value of paired values against the spread of the baseline itself.

    A training that breaks often breaks differently on every seed, and the spread of the
    differences then hides the change from the paired test. If nothing changed, ours has the
    distribution of the baseline, and the mean difference has at most the variance 2σ²/n if pairs
    are independent or positively correlated: t = m / (s sqrt(2/n)) with n − 1 degrees of freedom,
    and s the baseline's standard deviation, no less than ``least_deviation``. m is the mean of
    all differences except the one most in favour of a change, and 0 if that changes its sign: it
    is never further from 0 than the mean, and a single outlier of ours, which s does not cover,
    shows nothing. Two-sided. Fewer than two pairs have no p-value (NaN). Raises ``ValueError``
    unless all are finite and paired, and s positive unless m is 0.
    """
    first, second = np.asarray(ours, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    difference, n = first - second, len(second)
    if n < 2:
        return math.nan
    forward = difference * np.sign(difference.mean())
    kept = max(float(forward.sum() - forward.max()) / (n - 1), 0.0)
    deviation = max(float(second.std(ddof=1)), least_deviation)
    if kept == 0:
        return 1.0
    if not (deviation > 0 and math.isfinite(kept)):
        raise ValueError(f"baseline: found {baseline!r}; expected finite values that differ")
    return float(2 * special.stdtr(n - 1, -kept / (deviation * math.sqrt(2 / n))))


def noisy_t_test(values: ArrayLike, noise: float, *, level: float = 0.95) -> PairedTest:
    """Is the mean 0, if all values share a random shift with standard deviation ``noise``?

    The spread of the values does not include what they share, so the mean has the variance
    s²/n + noise². Its degrees of freedom are Satterthwaite's (Biometrics Bulletin 2, 1946), with
    the noise known: (s²/n + noise²)² / ((s²/n)² / (n − 1)). There is no ``effect`` (NaN). Fewer
    than two values, or values that are not all finite, have no p-value (NaN). Raises
    ``ValueError`` unless the noise is positive.
    """
    if not noise > 0:
        raise ValueError(f"noise: found {noise}; expected a positive standard deviation")
    given = np.asarray(values, dtype=np.float64)
    n = len(given)
    mean = float(given.mean()) if n else math.nan
    if n < 2 or not np.isfinite(given).all():
        return PairedTest(mean, math.nan, math.nan, math.nan, math.nan, math.nan, n)
    seen = float(given.var(ddof=1)) / n
    error = math.sqrt(seen + noise**2)
    freedom = min(error**4 * (n - 1) / seen**2, NORMAL) if seen > 0 else NORMAL
    half = float(special.stdtrit(freedom, (1 + level) / 2)) * error
    t = mean / error
    p = float(2 * special.stdtr(freedom, -abs(t)))
    return PairedTest(mean, mean - half, mean + half, math.nan, t, p, n)


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Holm's step-down adjusted p-values (Scandinavian Journal of Statistics 6, 1979).

    The i-th smallest of m becomes max over j ≤ i of (m − j + 1) p_(j), at most 1: calling
    everything below α significant errs at all with probability at most α. NaN stays NaN and is
    not a member of the family. Raises ``ValueError`` for values that are not probabilities.
    """
    given = np.asarray(p_values, dtype=np.float64)
    asked = np.flatnonzero(~np.isnan(given))
    if given.ndim != 1 or np.any((given[asked] < 0) | (given[asked] > 1)):
        raise ValueError(f"p_values: found {p_values!r}; expected a list of numbers from 0 to 1")
    order = asked[np.argsort(given[asked], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted = np.full_like(given, np.nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * given[order]), 1.0)
    return adjusted


def effect_size(differences: ArrayLike) -> float:
    """Hedges' d_z of paired differences: see ``PairedTest``. NaN if it is not defined."""
    d = np.asarray(differences, dtype=np.float64)
    deviation = float(d.std(ddof=1)) if len(d) > 1 and np.isfinite(d).all() else math.nan
    if not d.any():
        return 0.0 * deviation
    return _hedges(float(d.mean()) / deviation, len(d)) if deviation > 0 else math.nan


def _hedges(d: float, pairs: int) -> float:
    freedom = pairs - 1
    if freedom < 2:
        return math.nan
    logarithm = special.gammaln(freedom / 2) - special.gammaln((freedom - 1) / 2)
    return d * math.exp(logarithm) / math.sqrt(freedom / 2)
