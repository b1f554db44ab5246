"""Trends, against scipy and by counting all orders."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sweeps.analysis.statistics import distinct_runs, mann_kendall


def kendall_s(values: tuple[float, ...]) -> int:
    return sum(int(np.sign(b - a)) for a, b in itertools.combinations(values, 2))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=2, max_size=6))
def test_p_counts_all_orders_with_ties_too(values: list[int]) -> None:
    scores = [abs(kendall_s(order)) for order in itertools.permutations(values)]
    found = mann_kendall(values)
    assert found.s == kendall_s(tuple(values))
    assert found.p == pytest.approx(np.mean([score >= abs(found.s) for score in scores]))
    assert found.least_p == pytest.approx(np.mean([score >= max(scores) for score in scores]))


@settings(max_examples=40, deadline=None)
@given(st.permutations(range(14)))
def test_without_ties_it_is_scipys_exact_test(order: list[int]) -> None:
    found = mann_kendall(order)
    expected = stats.kendalltau(np.arange(14), order, method="exact")
    assert found.p == pytest.approx(expected.pvalue, rel=1e-9)
    assert found.s == pytest.approx(expected.statistic * 91)
    assert found.least_p == pytest.approx(2 / math.factorial(14), rel=1e-9)
    assert mann_kendall(order[::-1]) == found._replace(s=-found.s)


def test_many_values_do_not_overflow() -> None:
    found = mann_kendall(range(40))
    assert found.p == pytest.approx(2 / math.factorial(40), rel=1e-9)
    values = np.random.default_rng(0).normal(size=60)
    expected = stats.kendalltau(np.arange(60), values, method="exact").pvalue
    assert mann_kendall(values).p == pytest.approx(expected)


def test_few_or_equal_values_show_nothing() -> None:
    for values in ([], [1.0], [2.0, 2.0, 2.0]):
        assert mann_kendall(values) == (0, 1.0, 1.0)
    assert mann_kendall([1.0, 2.0]) == (1, 1.0, 1.0)


def test_runs_begin_where_a_row_leaves_the_first_of_its_run() -> None:
    rows = np.array([[0, 0], [0, 0], [0, 0.4], [0, 0.8], [0, 1.2], [5, 1.2], [0, 0]], dtype=float)
    assert distinct_runs(rows).tolist() == [0, 2, 3, 4, 5, 6]
    assert distinct_runs(rows, 0.5).tolist() == [0, 3, 5, 6]
    assert distinct_runs(rows, 10).tolist() == [0]
    assert distinct_runs(np.empty((0, 2))).tolist() == []


def test_bad_series_are_named() -> None:
    with pytest.raises(ValueError, match="finite numbers"):
        mann_kendall([1.0, math.inf])
