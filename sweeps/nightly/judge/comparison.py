"""Test each value of two nights on its own; ``judgement`` combines the tests.

Seeds are fixed, so an unchanged night on machines of one type is bit-identical. Identical
values are certainly unchanged and need no test. Values that differ are tested twice.

The first test is the paired t-test (``corrected_t_test`` with correlation ratio 0). Nadeau and
Bengio's correction does not apply: it concerns what a learner would do on other, overlapping
training sets. The question here is about these datasets and these splits, which are the same
on both sides for every seed; what remains in a difference is the randomness of one training
against another, which is independent from seed to seed.

The second is ``spread_test``, for trainings that broke: a learning rate a hundred times too
high makes the error of five seeds worse by 6 to 31 points, and the paired test says p = 0.02.

Standard deviations are taken to be at least half the smallest change that matters. An error
is a count: five seeds that are all worse by exactly five points have no spread at all, but
must still have a p-value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sweeps.analysis.statistics import corrected_t_test, spread_test
from sweeps.nightly.judge.pairs import Pairs
from sweeps.nightly.judge.rules import (
    BETTER,
    IDENTICAL,
    MISSING,
    NEW,
    TOO_FEW_PAIRS,
    WORSE,
    matters,
)

FEWEST = 3
"""The fewest seeds for a test: with two, Student's t has one degree of freedom and no power."""
NAN = math.nan


class Compared(NamedTuple):
    """The comparison of one value between two nights, before any correction.

    ``verdict`` is known without a test, or None. ``moved`` is whether the change is at least
    the minimum in root mean square over seeds, ``matters`` whether its mean is.
    """

    pairs: Pairs
    verdict: str | None = None
    difference: float = NAN
    low: float = NAN
    high: float = NAN
    paired_p: float = NAN
    spread_p: float = NAN
    moved: bool = False
    matters: bool = False


def compare_values(values: Sequence[Pairs], minimum: dict[str, float]) -> list[Compared]:
    """Compare every value, by the smallest change that matters in its metric.

    A value that was a number and is now NaN, or was finite and is now infinite, is worse without
    a test, however few the seeds: this rule is outside the false-alarm level. A calibrator with
    infinite values in both nights, in any cell, gives some classes the probability 0 and is
    infinite whenever one of them occurs: then Fisher's test compares the numbers of seeds on
    which it was, and the seeds that are finite in both nights are compared as usual.
    """
    chancy = _chancy(values)
    return [_value(each, minimum[each.metric], chancy) for each in values]


def _value(pairs: Pairs, minimum: float, chancy: Set[str]) -> Compared:
    verdict = known_without_test(pairs, chancy)
    if verdict is not None:
        nothing = 0.0 if verdict == IDENTICAL else NAN
        return Compared(pairs, verdict, nothing, nothing, nothing)
    there = ~np.isnan(pairs.before)  # and so are the others, or the verdict would be known already
    before, after = pairs.before[there], pairs.after[there]
    if np.isinf(before).any() or np.isinf(after).any():
        return _partly_infinite(pairs._replace(before=before, after=after), minimum)
    return _tested(pairs._replace(before=before, after=after), minimum)


def _tested(pairs: Pairs, minimum: float) -> Compared:
    """Both tests of values that are all finite."""
    before, after = pairs.before, pairs.after
    test = corrected_t_test(after, before, least_deviation=minimum / 2)
    root_mean_square = math.sqrt(float(np.mean((after - before) ** 2)))
    return Compared(
        pairs,
        difference=test.difference,
        low=test.low,
        high=test.high,
        paired_p=test.p,
        spread_p=spread_test(after, before, least_deviation=minimum / 2),
        moved=matters(root_mean_square, minimum),
        matters=matters(test.difference, minimum),
    )


def _chancy(values: Sequence[Pairs]) -> Set[str]:
    """The calibrators with an infinite value somewhere in both nights."""
    before, after = (
        {each.cell[-1] for each in values if np.isinf(night(each)).any()}
        for night in (attrgetter("before"), attrgetter("after"))
    )
    return before & after


def _partly_infinite(pairs: Pairs, minimum: float) -> Compared:
    """The worse of two comparisons: the number of infinite seeds, and the finite seeds.

    If both are tested, both p-values are doubled (Bonferroni).
    """
    infinite = _infinite(pairs, np.isinf(pairs.before), np.isinf(pairs.after))
    both = np.isfinite(pairs.before) & np.isfinite(pairs.after)
    rest = pairs._replace(before=pairs.before[both], after=pairs.after[both])
    if np.count_nonzero(both) < FEWEST or np.array_equal(rest.before, rest.after):
        return infinite
    finite = _tested(rest, minimum)
    if math.isnan(infinite.difference):  # on as many seeds as before: nothing to test
        return finite
    return max((_doubled(infinite), _doubled(finite)), key=_badness)


def _doubled(found: Compared) -> Compared:
    return found._replace(
        paired_p=min(1.0, 2 * found.paired_p), spread_p=min(1.0, 2 * found.spread_p)
    )


def _badness(found: Compared) -> tuple[bool, float]:
    """Sort key: harm first, then the smaller p-value."""
    return found.matters and found.difference > 0, -float(np.fmin(found.paired_p, found.spread_p))


def _infinite(pairs: Pairs, before: NDArray[np.bool_], after: NDArray[np.bool_]) -> Compared:
    """Is the value infinite on more seeds than before? Fisher's exact test of the counts."""
    old, new, seeds = int(before.sum()), int(after.sum()), len(before)
    p = float(stats.fisher_exact(np.array([[old, seeds - old], [new, seeds - new]])).pvalue)
    difference = math.copysign(math.inf, new - old) if new != old else NAN
    return Compared(pairs, difference=difference, paired_p=p, moved=True, matters=new != old)


def known_without_test(pairs: Pairs, chancy: Set[str] = frozenset()) -> str | None:
    """The verdict if no test is needed or possible; otherwise None."""
    before, after = pairs.before, pairs.after
    if pairs.there != "both":
        return MISSING if pairs.there == "baseline" else NEW
    if np.array_equal(before, after, equal_nan=True):
        return IDENTICAL
    unknown_before, unknown_after = np.isnan(before), np.isnan(after)
    if (unknown_after & ~unknown_before).any():
        return WORSE
    if (unknown_before & ~unknown_after).any():
        return BETTER
    was, became = bool(np.isinf(before).any()), bool(np.isinf(after).any())
    if was != became and pairs.cell[-1] not in chancy:
        return WORSE if became else BETTER
    return TOO_FEW_PAIRS if np.count_nonzero(~np.isnan(before)) < FEWEST else None
