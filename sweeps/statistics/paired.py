"""Is one method better than another? Paired over seeds, corrected for many questions."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from sweeps.statistics.intervals import check_ratio, half_width

ROUNDING = 1e-12


class PairedTest(NamedTuple):
    """What the seeds say about ours − baseline: its mean, interval, effect size and p-value.

    ``effect`` is d_z with Hedges' correction: the mean difference in standard deviations of
    the differences, times J(n−1) = Γ((n−1)/2) / (sqrt((n−1)/2) Γ((n−2)/2)), which takes
    away its bias in small samples. Two pairs are too few for it: NaN.
    """

    difference: float
    low: float
    high: float
    effect: float
    t: float
    p: float
    pairs: int


def corrected_t_test(
    ours: ArrayLike, baseline: ArrayLike, *, correlation_ratio: float = 0.0, level: float = 0.95
) -> PairedTest:
    """The corrected resampled t-test (Nadeau and Bengio 2003) of paired values, two-sided.

    t = mean(d) / (s sqrt(1/n + ratio)) with n − 1 degrees of freedom, d = ours − baseline.
    With ratio 0 it is the ordinary paired t-test. Pairs with a NaN are left out; fewer than
    two pairs have no p-value (NaN). Differences that are only rounding count as none: if all
    do, t is 0 and p is 1. If all are the same otherwise, they say nothing of their spread and
    there is no p-value: an error is a count, and two seeds often differ by the same number.
    No test can be made of an infinite value, such as the NLL of a 0 that came true: p is NaN.
    Raises ``ValueError`` if the lengths differ or the ratio is negative.
    """
    first, second = np.asarray(ours, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(
            f"ours, baseline: found shapes {first.shape} and {second.shape}; "
            "they must be paired, one value per seed"
        )
    check_ratio(np.asarray(correlation_ratio))
    there = ~(np.isnan(first) | np.isnan(second))
    first, second = first[there], second[there]
    n = len(first)
    if n < 2 or not (np.isfinite(first).all() and np.isfinite(second).all()):
        mean = float(first.mean()) - float(second.mean()) if n else math.nan
        return PairedTest(mean, math.nan, math.nan, math.nan, math.nan, math.nan, n)
    rounding = ROUNDING * np.maximum(np.abs(first), np.abs(second))
    difference = first - second
    difference[np.abs(difference) <= rounding] = 0.0
    mean, deviation = float(difference.mean()), float(difference.std(ddof=1))
    if mean and deviation <= rounding.max():
        return PairedTest(mean, math.nan, math.nan, math.nan, math.nan, math.nan, n)
    half = float(half_width(deviation, n, correlation_ratio=correlation_ratio, level=level))
    d = mean / deviation if mean else 0.0
    t = d / math.sqrt(1 / n + correlation_ratio)
    p = float(2 * stats.t.sf(abs(t), n - 1))
    return PairedTest(mean, mean - half, mean + half, _hedges(d, n), t, p, n)


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Holm's step-down adjusted p-values (Scandinavian Journal of Statistics 6, 1979).

    The i-th smallest of m becomes max over j ≤ i of (m − j + 1) p_(j), at most 1: whoever
    calls what lies below α significant errs at all with probability at most α. NaN stays NaN
    and is no member of the family. Raises ``ValueError`` for what is no probability.
    """
    given = np.asarray(p_values, dtype=np.float64)
    asked = np.flatnonzero(~np.isnan(given))
    if given.ndim != 1 or np.any((given[asked] < 0) | (given[asked] > 1)):
        raise ValueError(f"p_values: found {p_values!r}; a list of numbers from 0 to 1 is needed")
    order = asked[np.argsort(given[asked], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted = np.full_like(given, np.nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * given[order]), 1.0)
    return adjusted


def _hedges(d: float, pairs: int) -> float:
    freedom = pairs - 1
    if freedom < 2:
        return math.nan
    logarithm = special.gammaln(freedom / 2) - special.gammaln((freedom - 1) / 2)
    return d * math.exp(logarithm) / math.sqrt(freedom / 2)
