"""Intervals, paired tests and Holm's correction, against scipy, statsmodels and simulation."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from statsmodels.stats.multitest import multipletests

from sweeps.analysis.statistics import (
    corrected_t_test,
    half_width,
    holm,
    mean_interval,
    noisy_t_test,
    spread_test,
)

VALUES = st.floats(-5, 5).map(lambda value: round(value, 3))


def at_most(rate: float, simulated: int) -> int:
    """What a true rate of ``rate`` exceeds once in a thousand times."""
    return int(stats.binom.ppf(0.999, simulated, rate))


@pytest.fixture(autouse=True)
def _no_warnings() -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@settings(deadline=None)
@given(st.lists(st.tuples(VALUES, VALUES), min_size=3, max_size=12))
def test_without_overlap_it_is_the_paired_t_test(pairs: list[tuple[float, float]]) -> None:
    ours, baseline = np.array(pairs).T
    found = corrected_t_test(ours, baseline)
    difference = ours - baseline
    assert found.difference == pytest.approx(difference.mean(), abs=1e-12)
    assert found.pairs == len(pairs)
    if np.ptp(difference) < 1e-9:
        return
    expected = stats.ttest_rel(ours, baseline)
    assert found.t == pytest.approx(expected.statistic, rel=1e-6, abs=1e-9)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-12)
    interval = expected.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx(tuple(interval), rel=1e-6, abs=1e-9)


def test_overlap_widens_the_interval_by_its_formula() -> None:
    ours, baseline = np.array([0.3, 0.1, 0.4, 0.2, 0.35]), np.array([0.2, 0.1, 0.1, 0.15, 0.3])
    difference = ours - baseline
    error = difference.std(ddof=1) * math.sqrt(1 / 5 + 0.4)
    found = corrected_t_test(ours, baseline, correlation_ratio=0.4, level=0.9)
    assert found.t == pytest.approx(difference.mean() / error)
    assert found.p == pytest.approx(2 * stats.t.sf(found.t, 4))
    assert found.high - found.low == pytest.approx(2 * stats.t.ppf(0.95, 4) * error)
    interval = mean_interval(difference, correlation_ratio=0.4, level=0.9)
    assert interval == pytest.approx((found.low, found.high))
    plain = mean_interval(difference)
    assert plain == pytest.approx(
        stats.t.interval(0.95, 4, difference.mean(), stats.sem(difference))
    )


def test_the_effect_is_unbiased_in_small_samples() -> None:
    """The mean of Hedges' d_z over many samples is the true effect; the plain one's is not."""
    rng = np.random.default_rng(0)
    samples = rng.normal(0.8, 1.0, (4000, 5))
    plain = samples.mean(1) / samples.std(1, ddof=1)
    corrected = [corrected_t_test(row, np.zeros(5)).effect for row in samples]
    allowed = 4 * np.std(corrected) / math.sqrt(len(samples))
    assert np.mean(corrected) == pytest.approx(0.8, abs=allowed)
    assert plain.mean() > 0.8 + allowed


def test_equal_values_show_nothing_and_constant_differences_are_not_testable() -> None:
    same = corrected_t_test([0.1, 0.2, 0.3], [0.1, 0.2, 0.3])
    assert (same.difference, same.t, same.p, same.effect) == (0, 0, 1, 0)
    rounding = corrected_t_test([0.1, 0.2, 0.3], np.array([0.1, 0.2, 0.3]) * (1 + 4e-16))
    assert rounding.p == 1
    constant = corrected_t_test([0.15, 0.25, 0.35], [0.1, 0.2, 0.3])
    assert constant.difference == pytest.approx(0.05)
    assert np.isnan([constant.p, constant.low, constant.high, constant.effect]).all()


@pytest.mark.parametrize(("rows", "ratio"), [(100, 0.0), (200, 0.25)])
@pytest.mark.parametrize("seeds", [2, 3])
def test_counts_of_equally_good_classifiers_keep_the_level(
    rows: int, ratio: float, seeds: int
) -> None:
    """Errors are counts: with few seeds they often differ by the same number every time."""
    rng = np.random.default_rng(seeds)
    simulated = 3000
    errors = rng.binomial(rows, 0.1, (simulated, 2, seeds)) / rows
    p = [corrected_t_test(a, b, correlation_ratio=ratio).p for a, b in errors]
    found = int(np.sum(np.array(p) < 0.05))  # NaN is no finding
    assert found <= stats.binom.ppf(0.999, simulated, 0.05)


def test_missing_and_infinite_values() -> None:
    nan, inf = math.nan, math.inf
    whole = corrected_t_test([1.0, 2.0, 4.0], [0.5, 1.0, 1.0])
    assert corrected_t_test([1.0, nan, 2.0, 4.0, 3.0], [0.5, 1.0, 1.0, 1.0, nan]) == whole
    one = corrected_t_test([1.0, nan], [0.5, 1.0])
    assert (one.difference, one.pairs) == (0.5, 1)
    assert math.isnan(one.p)
    assert math.isnan(corrected_t_test([], []).difference)
    infinite = corrected_t_test([1.0, inf, 2.0], [1.0, 1.0, 1.0])
    assert (infinite.difference, math.isnan(infinite.p)) == (inf, True)
    assert math.isnan(corrected_t_test([1.0, 2.0], [0.0, 0.5]).effect)
    assert np.isnan(mean_interval([3.0])).all()
    assert np.isnan(mean_interval([])).all()
    assert np.isnan(mean_interval([1.0, inf])).all()
    assert mean_interval([1.0, nan, 2.0]) == mean_interval([1.0, 2.0])
    assert np.isnan(half_width([1.0, 1.0], [1, 2])).tolist() == [True, False]


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="paired, one value per seed"):
        corrected_t_test([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="n_test / n_train"):
        corrected_t_test([1.0, 2.0], [1.0, 3.0], correlation_ratio=-0.1)
    with pytest.raises(ValueError, match="level: found 95"):
        mean_interval([1.0, 2.0], level=95)
    with pytest.raises(ValueError, match="from 0 to 1"):
        holm([0.1, 1.2])


@pytest.mark.parametrize("size", [1, 2, 5, 12])
def test_holm_is_that_of_statsmodels(size: int) -> None:
    p_values = np.random.default_rng(size).random(size).round(1) / size  # with ties
    expected = multipletests(p_values, method="holm")[1]
    np.testing.assert_allclose(holm(p_values), expected, atol=1e-12)
    adjusted = holm([math.nan, *p_values, math.nan])
    assert np.isnan(adjusted[[0, -1]]).all()
    np.testing.assert_allclose(adjusted[1:-1], expected, atol=1e-12)


def test_holm_of_nothing() -> None:
    assert len(holm([])) == 0
    assert np.isnan(holm([math.nan, math.nan])).all()


def test_null_sweeps_err_at_no_more_than_the_nominal_rate() -> None:
    """Five methods as good as the baseline, fresh data for each of five seeds."""
    rng, sweeps, wrong = np.random.default_rng(1), 2000, 0
    for _ in range(sweeps):
        values = rng.normal(size=5) + 0.5 * rng.normal(size=(6, 5))  # seeds are hard or easy
        p_values = [corrected_t_test(ours, values[0]).p for ours in values[1:]]
        wrong += bool((holm(p_values) < 0.05).any())
    assert wrong <= at_most(0.05, sweeps)


@pytest.mark.parametrize("ratio", [0.0, 0.4])
def test_a_real_difference_is_found_among_null_methods(ratio: float) -> None:
    rng, sweeps = np.random.default_rng(2), 300
    found = np.zeros(5)
    for _ in range(sweeps):
        values = rng.normal(size=5) + 0.1 * rng.normal(size=(6, 5))
        values[1] -= 1.0
        tests = [corrected_t_test(ours, values[0], correlation_ratio=ratio) for ours in values[1:]]
        found += holm([test.p for test in tests]) < 0.05
        assert tests[0].difference < 0
    assert found[0] > 0.9 * sweeps
    assert found[1:].max() <= at_most(0.05, sweeps)


def test_resampled_training_sets_need_the_correction() -> None:
    """Two equally good linear classifiers, each seed dividing the same 400 rows anew."""
    rng, sweeps, rows, tested = np.random.default_rng(3), 1000, 400, 100
    differences = np.stack([_errors(rng, rows, tested) for _ in range(sweeps)])
    wrong = {
        ratio: sum(
            corrected_t_test(row, np.zeros(5), correlation_ratio=ratio).p < 0.05
            for row in differences
        )
        for ratio in (0.0, tested / (rows - tested))
    }
    plain, corrected = wrong.values()
    assert plain > 2 * 0.05 * sweeps
    assert corrected <= at_most(0.05, sweeps)


def _errors(rng: np.random.Generator, rows: int, tested: int) -> NDArray[np.float64]:
    """By seed, how much more often the first half of the inputs errs than the second."""
    inputs = rng.normal(size=(rows, 16))
    labels = np.sign(inputs.sum(1) + 2 * rng.normal(size=rows))
    found = []
    for _ in range(5):
        test, train = np.split(rng.permutation(rows), [tested])
        first, second = (
            np.mean(
                np.sign(seen[test] @ _least_squares(seen[train], labels[train])) != labels[test]
            )
            for seen in (inputs[:, :8], inputs[:, 8:])
        )
        found.append(first - second)
    return np.array(found)


def _least_squares(inputs: NDArray[np.float64], labels: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.linalg.solve(inputs.T @ inputs, inputs.T @ labels))


def test_a_least_deviation_gives_equal_differences_a_p_value() -> None:
    found = corrected_t_test([0.15, 0.25, 0.35], [0.1, 0.2, 0.3], least_deviation=0.005)
    t = 0.05 / (0.005 / math.sqrt(3))
    assert found.t == pytest.approx(t)
    assert found.p == pytest.approx(2 * stats.t.sf(t, 2))
    assert found.high - found.difference == pytest.approx(stats.t.ppf(0.975, 2) * 0.05 / t)
    with pytest.raises(ValueError, match="least_deviation: found -1"):
        corrected_t_test([1.0, 2.0], [0.0, 0.0], least_deviation=-1)


@settings(deadline=None)
@given(st.lists(VALUES, min_size=2, max_size=8), st.floats(0, 2))
def test_a_least_deviation_never_makes_a_p_value_smaller(values: list[float], least: float) -> None:
    zeros = np.zeros(len(values))
    plain, careful = (corrected_t_test(values, zeros, least_deviation=d) for d in (0.0, least))
    assert math.isnan(plain.p) or careful.p >= plain.p
    if np.std(values, ddof=1) > least:
        assert careful == plain


def test_noise_that_all_values_share_is_added_to_their_own() -> None:
    values = [0.3, 0.5, 0.4, 0.45]
    own = np.var(values, ddof=1) / 4
    error = math.sqrt(own + 0.1**2)
    freedom = error**4 / (own**2 / 3)
    found = noisy_t_test(values, 0.1)
    assert found.t == pytest.approx(np.mean(values) / error)
    assert found.p == pytest.approx(2 * stats.t.sf(found.t, freedom))
    half = stats.t.ppf(0.975, freedom) * error
    assert (found.low, found.high) == pytest.approx(
        (np.mean(values) - half, np.mean(values) + half)
    )
    certain = noisy_t_test([0.2, 0.2, 0.2], 0.1)  # only the noise is left, and it is known
    assert certain.p == pytest.approx(2 * stats.norm.sf(2.0), rel=1e-6)
    assert math.isnan(noisy_t_test([0.2], 0.1).p)
    assert math.isnan(noisy_t_test([0.2, math.inf], 0.1).p)
    assert math.isnan(noisy_t_test([], 0.1).difference)
    with pytest.raises(ValueError, match="noise: found 0"):
        noisy_t_test([1.0, 2.0], 0)


def test_shared_noise_keeps_the_level() -> None:
    rng = np.random.default_rng(4)
    samples = rng.normal(0, 0.13, (3000, 1)) + rng.normal(0, 0.1, (3000, 5))
    alarms = sum(noisy_t_test(row, 0.13).p < 0.01 for row in samples)
    assert alarms <= at_most(0.012, 3000)  # Satterthwaite's degrees are an approximation
    assert sum(corrected_t_test(row, np.zeros(5)).p < 0.01 for row in samples) > 300


@settings(deadline=None)
@given(st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=8))
def test_the_spread_test_is_its_formula(pairs: list[tuple[float, float]]) -> None:
    ours, baseline = np.array(pairs).T
    differences = ours - baseline
    left_out = [np.delete(differences, place).mean() for place in range(len(pairs))]
    sign = np.sign(differences.mean())
    kept = max(min(sign * mean for mean in left_out), 0.0)
    assert kept <= abs(differences.mean()) + 1e-12
    t = kept / (max(baseline.std(ddof=1), 0.1) * math.sqrt(2 / len(pairs)))
    found = spread_test(ours, baseline, least_deviation=0.1)
    assert found == pytest.approx(2 * stats.t.sf(t, len(pairs) - 1), rel=1e-6, abs=1e-9)
    assert spread_test(2 * baseline - ours, baseline, least_deviation=0.1) == pytest.approx(found)


def test_the_spread_test_sees_chaos_and_not_one_outlier() -> None:
    baseline = [0.020, 0.029, 0.009, 0.047, 0.027]
    broken = [0.085, 0.089, 0.252, 0.236, 0.336]
    assert corrected_t_test(broken, baseline).p > 0.02
    assert spread_test(broken, baseline) < 1e-3
    assert spread_test([0.020, 0.9, 0.009, 0.047, 0.027], baseline) == 1
    assert math.isnan(spread_test([0.1], [0.2]))
    assert spread_test([0.1, 0.1], [0.1, 0.1]) == 1
    with pytest.raises(ValueError, match="finite values that differ"):
        spread_test([0.2, 0.2], [0.1, 0.1])


@pytest.mark.parametrize("shared", [0.0, 0.8])
def test_the_spread_test_keeps_its_level(shared: float) -> None:
    rng = np.random.default_rng(7)
    common, own = rng.normal(0, shared, (3000, 1, 5)), rng.normal(0, 0.5, (3000, 2, 5))
    alarms = sum(spread_test(ours, baseline) < 0.01 for ours, baseline in common + own)
    assert alarms <= at_most(0.01, 3000)
