"""Ranks, critical differences, Pareto fronts and hypervolumes, against tables and brute force."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from sweeps.analysis.statistics import critical_difference, hypervolume, pareto_front, ranks

# Demšar 2006, Table 5 (a): the two-tailed Nemenyi test at 5 %, by the number of classifiers.
NEMENYI = [1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164]


def frame(values: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(values, columns=[f"m{i}" for i in range(values.shape[1])])


@pytest.mark.parametrize(("methods", "q"), list(enumerate(NEMENYI, start=2)))
def test_critical_differences_are_those_of_the_table(methods: int, q: float) -> None:
    expected = q * np.sqrt(methods * (methods + 1) / (6 * 14))
    assert critical_difference(methods, 14) == pytest.approx(expected, abs=0.001)


@settings(max_examples=50, deadline=None)
@given(
    st.tuples(st.integers(2, 8), st.integers(3, 6)).flatmap(
        lambda shape: arrays(np.float64, shape, elements=st.integers(0, 4).map(float))
    )
)
def test_ranks_agree_with_scipy(values: np.ndarray) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ranks(frame(values))
    assert found is not None
    expected = stats.rankdata(values, axis=1).mean(0)
    assert found.average.to_dict() == pytest.approx(dict(zip(frame(values), expected, strict=True)))
    assert found.average.is_monotonic_increasing
    assert found.datasets == len(values)
    if any(len(set(row)) > 1 for row in values):
        friedman = stats.friedmanchisquare(*values.T).pvalue
        assert found.friedman_p == pytest.approx(friedman)
    else:
        assert found.friedman_p == 1
    assert set(found.groups) == set(brute_groups(found.average, found.critical_difference))


def brute_groups(average: pd.Series, distance: float) -> list[tuple[str, ...]]:
    """All sets whose members are pairwise close, without those inside a larger one."""
    close = [
        set(names)
        for size in range(2, len(average) + 1)
        for names in itertools.combinations(average.index, size)
        if np.ptp(average[list(names)]) < distance
    ]
    largest = [names for names in close if not any(names < other for other in close)]
    return [tuple(name for name in average.index if name in names) for names in largest]


def test_a_clear_order_over_many_datasets_makes_groups() -> None:
    order = np.tile(np.arange(6.0), (20, 1))
    found = ranks(frame(order))
    assert found is not None
    assert found.critical_difference == pytest.approx(2.85 * np.sqrt(42 / 120), abs=0.001)
    assert found.groups == [("m0", "m1"), ("m1", "m2"), ("m2", "m3"), ("m3", "m4"), ("m4", "m5")]
    assert found.friedman_p < 1e-10


def test_too_little_to_rank() -> None:
    assert ranks(frame(np.ones((1, 4)))) is None
    assert ranks(frame(np.ones((4, 2)))) is None
    with pytest.raises(ValueError, match="none for m1 on some datasets"):
        ranks(frame(np.array([[1, np.nan, 3], [1, 2, 3]])))


POINTS = st.tuples(st.integers(0, 12), st.integers(1, 4)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.integers(0, 5).map(float))
)


@settings(deadline=None)
@given(POINTS)
def test_the_front_is_that_of_brute_force(points: np.ndarray) -> None:
    def beaten(point: np.ndarray) -> bool:
        return any(all(other <= point) and any(other < point) for other in points)

    assert pareto_front(points).tolist() == [not beaten(point) for point in points]


def test_points_with_nan_are_not_on_the_front() -> None:
    points = [[1.0, 2.0], [np.nan, 0.0], [1.0, 2.0], [0.5, 3.0], [2.0, 2.0]]
    assert pareto_front(points).tolist() == [True, False, True, True, False]
    with pytest.raises(ValueError, match="one row per point"):
        pareto_front([1.0, 2.0])


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([2, 3]).flatmap(
        lambda columns: st.integers(0, 6).flatmap(
            lambda rows: arrays(np.float64, (rows, columns), elements=st.floats(-1, 2))
        )
    )
)
def test_the_hypervolume_is_that_of_inclusion_and_exclusion(points: np.ndarray) -> None:
    corner = np.ones(points.shape[1])
    expected = sum(
        (-1) ** (size + 1) * np.prod(np.clip(corner - np.max(chosen, axis=0), 0, None))
        for size in range(1, len(points) + 1)
        for chosen in itertools.combinations(points, size)
    )
    assert hypervolume(points, corner) == pytest.approx(float(expected), abs=1e-9)


def test_the_hypervolume_is_that_of_random_points_under_the_front() -> None:
    rng = np.random.default_rng(0)
    points = rng.random((30, 3))
    sample = rng.random((200_000, 3))
    dominated = np.zeros(len(sample), dtype=bool)
    for point in points:
        dominated |= (sample >= point).all(axis=1)
    share = dominated.mean()
    allowed = 4 * np.sqrt(share * (1 - share) / len(sample))
    assert hypervolume(points, np.ones(3)) == pytest.approx(share, abs=allowed)


def test_hypervolumes_of_few_points() -> None:
    assert hypervolume(np.empty((0, 2)), (1, 1)) == 0
    assert hypervolume([[0.5, np.nan], [2.0, 0.0]], (1, 1)) == 0
    assert hypervolume([[0.25, 0.5]], (1, 1)) == pytest.approx(0.375)
    with pytest.raises(ValueError, match="two or three objectives"):
        hypervolume([[1.0]], [2.0])
