"""Methods over several datasets: average ranks, Friedman's test, Nemenyi's critical difference.

After Demšar, "Statistical comparisons of classifiers over multiple data sets" (JMLR 7, 2006).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

FEWEST_DATASETS, FEWEST_METHODS = 2, 3
_ALPHA = 0.05


class Ranks(NamedTuple):
    """How methods rank over datasets; rank 1 is the best.

    ``friedman_p`` is the p-value of the hypothesis that they do not differ. ``groups`` are the
    largest sets of two or more methods, best first, whose average ranks differ by less than
    ``critical_difference``: not distinguished by Nemenyi's test at 5 %.
    """

    average: pd.Series
    datasets: int
    friedman_p: float
    critical_difference: float
    groups: list[tuple[str, ...]]


def ranks(scores: pd.DataFrame) -> Ranks | None:
    """Rank the methods (columns) on every dataset (rows); lower scores are better.

    Ties share the average of their ranks. None with fewer than two datasets or three
    methods. Raises ``ValueError`` if a score is missing: every method needs one everywhere.
    """
    if scores.shape[0] < FEWEST_DATASETS or scores.shape[1] < FEWEST_METHODS:
        return None
    if scores.isna().to_numpy().any():
        missing = [str(name) for name in scores.columns[scores.isna().any()]]
        raise ValueError(f"scores: none for {', '.join(missing)} on some datasets; leave it out")
    average = scores.rank(axis=1).mean().sort_values(kind="stable")
    distance = critical_difference(scores.shape[1], scores.shape[0])
    return Ranks(average, len(scores), _friedman(scores), distance, _groups(average, distance))


def critical_difference(methods: int, datasets: int) -> float:
    """Nemenyi's q sqrt(k (k+1) / (6 N)) at 5 %, q the studentised range's quantile / sqrt 2."""
    return _quantile(methods) * math.sqrt(methods * (methods + 1) / (6 * datasets))


@lru_cache
def _quantile(methods: int) -> float:
    return float(stats.studentized_range.ppf(1 - _ALPHA, methods, np.inf)) / math.sqrt(2)


def _friedman(scores: pd.DataFrame) -> float:
    tied = scores.nunique(axis=1).eq(1).all()
    if tied:  # the statistic would be 0 / 0
        return 1.0
    return float(stats.friedmanchisquare(*scores.to_numpy().T).pvalue)


def _groups(average: pd.Series, distance: float) -> list[tuple[str, ...]]:
    """Every run of neighbours closer than ``distance`` that no longer run contains."""
    values, names = average.to_numpy(), [str(name) for name in average.index]
    found: list[tuple[str, ...]] = []
    reached = 0
    for first in range(len(values)):
        last = int(np.searchsorted(values, values[first] + distance, side="left"))
        if last > max(reached, first + 1):
            found.append(tuple(names[first:last]))
            reached = last
    return found
