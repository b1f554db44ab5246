"""Does a series go up or down? Kendall's S, exactly, with ties too, and runs of like rows."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class MannKendall(NamedTuple):
    """The result of the Mann-Kendall test of a series.

    ``s`` counts the pairs that go up minus those that go down. ``p`` is two-sided, and
    ``least_p`` the smallest that any order of the same values could have had.
    """

    s: int
    p: float
    least_p: float


def mann_kendall(values: ArrayLike) -> MannKendall:
    """The test of Mann (Econometrica 13, 1945) and Kendall: are all orders equally likely?

    Exact for any number of values, with ties too: of the n! / Π t! orders of values of which
    t are equal, those with i pairs going down are counted by the coefficient of q^i in the
    Gaussian multinomial Π_k (1 − q^k) / Π_t Π_j≤t (1 − q^j). Fewer than two values, or equal
    ones, have p 1. Raises ``ValueError`` unless given a list of finite numbers.
    """
    series = np.asarray(values, dtype=np.float64)
    if series.ndim != 1 or not np.isfinite(series).all():
        raise ValueError(f"values: found {values!r}; expected a list of finite numbers")
    ties = np.unique(series, return_counts=True)[1]
    signs = np.sign(series[None, :] - series[:, None])
    s = int(np.triu(signs).sum())
    chances = _chances(tuple(sorted(ties.tolist())))
    pairs = len(chances) - 1  # S runs from -pairs to pairs in steps of two
    extreme = np.abs(pairs - 2 * np.arange(pairs + 1)) >= abs(s)
    least = 2 * float(chances[0]) if pairs else 1.0
    return MannKendall(s, min(float(chances[extreme].sum()), 1.0), min(least, 1.0))


def distinct_runs(rows: ArrayLike, tolerance: float = 0.0) -> NDArray[np.intp]:
    """Where each run of similar rows (N, M) starts: the index of the first row of every run.

    A row belongs to the run as long as no entry is further than ``tolerance`` from the run's
    first row: compared with its neighbour only, a slow change would never start a new one.
    """
    given = np.asarray(rows, dtype=np.float64)
    starts: list[int] = []
    for index, row in enumerate(given):
        if not starts or np.any(np.abs(row - given[starts[-1]]) > tolerance):
            starts.append(index)
    return np.asarray(starts, dtype=np.intp)


@lru_cache(maxsize=256)
def _chances(ties: tuple[int, ...]) -> NDArray[np.float64]:
    """The probability of every number of pairs going down, from whole numbers of orders."""
    counts = [1]
    for factor in range(1, sum(ties) + 1):
        counts = _times(counts, factor)
    for tied in ties:
        for factor in range(1, tied + 1):
            counts = _divided(counts, factor)
    total = sum(counts)
    return np.array([count / total for count in counts])


def _times(counts: list[int], factor: int) -> list[int]:
    """The polynomial times 1 − q^factor."""
    longer = counts + [0] * factor
    return [each - (longer[i - factor] if i >= factor else 0) for i, each in enumerate(longer)]


def _divided(counts: list[int], factor: int) -> list[int]:
    """The polynomial divided by 1 − q^factor, which must divide it."""
    quotient = counts[: len(counts) - factor]
    for index in range(factor, len(quotient)):
        quotient[index] += quotient[index - factor]
    return quotient
