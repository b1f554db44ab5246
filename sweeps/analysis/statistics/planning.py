"""How many more seeds and rows would decide: from the region's edge, not the observed effect.

An observed effect is too large or too small by chance, and a plan based on it inherits that. What
is known beforehand is which differences matter: it is enough that two rows without any difference
would be called equivalent with a probability of 80 %, which takes a standard error of
r / (t(1 − level) + t(0.9)). A difference that matters is then usually found, too.
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
    """Additional seeds and test rows; inf: more than is feasible."""

    seeds: float
    rows: float


def needed(found: Estimate, region: float, level: float) -> Needed | None:
    """The additional seeds and rows that would decide at a one-sided ``level``.

    (0, 0): there are enough already, the difference is too close to the region's edge. Seeds
    alone if up to 100 of them are enough, else rows alone, else both. None if nothing is known,
    or there is no region.
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
    # The seeds that would suffice for twice the error, ignoring rows; the rows do the rest.
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
