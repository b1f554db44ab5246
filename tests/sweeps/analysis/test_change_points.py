"""Steps in a series: brute force, and how often there seems to be one."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sweeps.analysis.statistics import change_point, change_points


@given(st.lists(st.floats(-5, 5), min_size=3, max_size=12))
def test_the_place_is_the_one_with_the_largest_t(values: list[float]) -> None:
    series = np.round(values, 2) + np.random.default_rng(0).normal(0, 0.1, len(values))
    tests = [stats.ttest_ind(series[k:], series[:k]) for k in range(1, len(series))]
    best = max(range(len(tests)), key=lambda k: abs(tests[k].statistic))
    found = change_point(series)
    assert found is not None
    assert found.place == best + 1
    assert found.step == pytest.approx(series[best + 1 :].mean() - series[: best + 1].mean())
    assert found.p == pytest.approx(min(1.0, len(tests) * tests[best].pvalue), rel=1e-6)


def test_short_equal_and_wrong_series() -> None:
    assert change_point([]) is None
    assert change_point([1.0]) is None
    pair = change_point([1.0, 3.0])
    assert pair is not None
    assert (pair.place, pair.step) == (1, 2.0)
    assert math.isnan(pair.p)
    same = change_point([2.0] * 8)
    assert same is not None
    assert same.p == 1.0
    exact = change_point([0.0] * 5 + [1.0] * 5)
    assert exact is not None
    assert (exact.place, exact.p) == (5, 0.0)
    floored = change_point([0.0] * 5 + [1.0] * 5, least_deviation=10.0)
    assert floored is not None
    assert floored.p > 0.5
    with pytest.raises(ValueError, match="a list of finite numbers"):
        change_point([1.0, math.nan])


def test_what_was_fixed_and_broke_again_has_three_steps() -> None:
    levels = np.repeat([0.0, 1.0, 0.0, 1.0], [6, 5, 7, 4])
    assert change_points(levels) == [6, 11, 18]
    noisy = levels + np.random.default_rng(0).normal(0, 0.1, len(levels))
    assert change_points(noisy) == [6, 11, 18]
    assert change_points(levels, least_deviation=5.0) == []
    assert change_points([2.0] * 8) == []
    assert change_points([1.0]) == []


@given(st.lists(st.integers(-3, 3), min_size=2, max_size=8))
def test_no_division_is_better(values: list[int]) -> None:
    """All divisions of short series, one by one, with a known noise."""
    series = np.array(values, dtype=float)
    quartile = float(np.quantile(np.abs(np.diff(series)), 0.25))
    noise = max(quartile / (stats.norm.ppf(0.625) * math.sqrt(2)), 0.3)

    def price(steps: tuple[int, ...]) -> float:
        parts = np.split(series, list(steps))
        residual = sum(((part - part.mean()) ** 2).sum() for part in parts)
        return float(residual / noise**2 + 3 * math.log(len(series)) * len(steps))

    places = range(1, len(series))
    every = (c for size in range(len(series)) for c in itertools.combinations(places, size))
    found = tuple(change_points(series, least_deviation=0.3))
    assert price(found) == pytest.approx(min(map(price, every)), rel=1e-3)


@pytest.mark.parametrize("tails", [3.0, 100.0])
def test_a_series_without_a_step_has_one_too_seldom_rather_than_too_often(tails: float) -> None:
    rng = np.random.default_rng(3)
    for n in (5, 14, 40):
        draws = rng.standard_t(tails, (1500, n))
        alarms = sum(change_point(series).p < 0.05 for series in draws)  # type: ignore[union-attr]
        # Heavy tails make single nights stand out, which means over seeds hardly have.
        assert alarms <= stats.binom.ppf(0.999, 1500, 0.05 if tails > 50 else 0.12)
