"""How much more it would take to decide: from the region's edge, not from what was observed.

An effect that was observed is too large or too small by chance, and a plan made from it inherits
that. What is known beforehand is which differences matter: it is enough that two rows without any
difference would be called equivalent with a probability of 80 %, which takes a standard error of
r / (t(1 − level) + t(0.9)). Then a difference that matters is mostly found, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from scipy import special

from sweeps.analysis.statistics.crossed import Estimate

MOST_SEEDS, MOST_ROWS = 1000, 10**8
_SENSIBLE_SEEDS = 100
_POWER = 0.8


class Needed(NamedTuple):
    """How many seeds and test rows beside those that are there; inf: more than can be had."""

    seeds: float
    rows: float


def needed(found: Estimate, region: float, level: float) -> Needed | None:
    """What would decide, with so many seeds and rows, at a one-sided ``level``.

    (0, 0): there are enough already, the difference lies too close to the region's edge. Seeds
    alone where that is possible with up to 100 of them, else rows alone, else both. None where
    nothing is known, or there is no region.
    """
    if not found.testable or math.isnan(found.by_seed) or not region > 0:
        return None

    def enough(seeds: int, rows: float) -> bool:
        variance, freedom = found.with_more(seeds, rows)
        quantiles = special.stdtrit(freedom, [1 - level, (1 + _POWER) / 2]).sum()
        return bool(math.sqrt(variance) * quantiles <= region)

    n, m = found.seeds, found.rows
    if enough(n, m):
        return Needed(0, 0)
    seeds = _first(lambda k: enough(k, m), n, MOST_SEEDS) if n else math.inf
    if not m or seeds - n <= _SENSIBLE_SEEDS:
        return Needed(seeds - n, 0)
    rows = _first(lambda k: enough(n, k), m, MOST_ROWS)
    if rows < math.inf or not n:
        return Needed(0, rows - m)
    # The seeds that would do with twice the room, were it not for the rows; the rows do the rest.
    half = found._replace(by_row=0.0, by_both=0.0)
    alone = needed(half._replace(rows=0), region / math.sqrt(2), level)
    total = n if alone is None else n + alone.seeds
    if total == math.inf:
        return Needed(math.inf, 0)
    return Needed(total - n, _first(lambda k: enough(int(total), k), m, MOST_ROWS) - m)


def _first(enough: Callable[[int], bool], below: int, most: int) -> float:
    """The smallest number above ``below`` that is enough; infinite if ``most`` is not."""
    if not enough(most):
        return math.inf
    low, high = below, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
