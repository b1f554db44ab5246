"""Is tonight worse than the accepted baseline? All cells and metrics together.

All tests of a night are corrected as one family by Holm's method, so that the whole night
raises a false alarm with at most the probability that was set. The two tests of a value (see
``judge.comparison``) get three quarters and one quarter of it.

The paired tests' family excludes values that changed by less than the minimum in root mean
square over their seeds. Such a value cannot be called better or worse anyway, since its mean
changed by even less; and excluding it does not bias the tests: given no change, the direction of
the vector of normal differences, on which t depends, is independent of its length, and also of
the lengths of all others however correlated (the matrix of seeds × cells is left-spherical:
Läuter, Glimm and Kropf, Annals of Statistics 26, 1998). So values that moved little cost no
power, which matters with five seeds.

Measured at level 0.05 on simulated nights of 135 values with correlated cells, tails as heavy
as Student's t with three degrees of freedom and counts. Fresh seeds and no change: a false
"better" or "worse" in at most 0.1, 1.4 and 2.7 % of nights with 3, 5 and 8 seeds. A calibrator that
stops having any effect (ECE worse by 0.006 to 0.02 in its 15 cells): found in 94 and 100 % with
5 and 8. One training that breaks differently on every seed: in 99 and 100 %, and in 90 and
99 % if all other values have fresh seeds too; the paired test alone finds 16 and 81 %, and 5
and 33 %. One that is worse by three times the minimum on every seed: in 98 % or more of all
these; by twice the minimum among fresh seeds in 11 % with 5 seeds, in all with 8.

One rule is outside the level, since it needs no test: a value that was finite in the baseline
and is NaN or infinite in a single seed tonight is worse. A calibrator that happened to meet no
zero in the baseline can do that by chance; ``judge.comparison`` says when Fisher's test is used
instead.

Shrinking variances towards each other, as limma does, errs in 15 % of nights with five seeds
and in 28 % with three, since cells are not alike; sign flips with five seeds cannot reach 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sweeps.analysis.statistics import holm
from sweeps.nightly.archive.results import CELL
from sweeps.nightly.judge.comparison import Compared, compare_values
from sweeps.nightly.judge.costs import busiest, compare_costs
from sweeps.nightly.judge.pairs import Pairs, paired
from sweeps.nightly.judge.rules import (
    BETTER,
    COST,
    DRIFTING,
    IDENTICAL,
    MISSING,
    TOO_FEW_PAIRS,
    UNCHANGED,
    VERDICT_COLUMNS,
    WORSE,
    Judge,
)

PAIRED_SHARE = 0.75
"""The paired tests' share of the level; the rest is for the tests by the baseline's spread."""


def judge(tonight: pd.DataFrame, baseline: pd.DataFrame, settings: Judge) -> pd.DataFrame:
    """One line of ``VERDICT_COLUMNS`` per cell and metric of either night, and per cost.

    "worse" and "better" need both ``p_holm`` below the baseline's share of the level and a
    mean change of at least the minimum. ``p`` combines the two tests; the interval is the
    paired test's. The cost's difference and interval are relative changes of the work, as
    ``judge.costs`` measures it. Raises ``ValueError`` for frames that cannot be compared.
    """
    values, costs = paired(tonight, baseline, list(settings.minimum))
    found = compare_values(values, settings.minimum)
    found += compare_costs(costs, settings.cost, busiest(tonight, baseline))
    return pd.DataFrame(_lines(found, settings.baseline_level), columns=VERDICT_COLUMNS)


def overall(
    lines: pd.DataFrame, trends: pd.DataFrame, steps: pd.DataFrame, *, complete: bool
) -> str:
    """The night in one word: "regression", "incomplete", "identical" or "fine".

    Anything worse or drifting makes it a regression. A night that is not complete, lacks
    something that the baseline has, or has values of too few seeds to be judged, is incomplete
    and never good. Seconds are never identical, so "identical" ignores the cost.
    """
    if WORSE in {*lines["verdict"], *steps["verdict"]} or DRIFTING in set(trends["verdict"]):
        return "regression"
    values = set(lines.loc[lines["metric"] != COST, "verdict"])
    if not complete or not values or values & {MISSING, TOO_FEW_PAIRS}:
        return "incomplete"
    return "identical" if values == {IDENTICAL} else "fine"


def _lines(found: Sequence[Compared], level: float) -> list[dict[str, Any]]:
    paired_p = np.array([each.paired_p for each in found])
    spread_p = np.array([each.spread_p for each in found])
    moved = np.array([each.moved for each in found], dtype=bool)
    together = _together(paired_p, spread_p)
    corrected = _together(holm(np.where(moved, paired_p, math.nan)), holm(spread_p))
    return [
        _line(each.pairs)
        | {"difference": each.difference, "low": each.low, "high": each.high}
        | {"p": p, "p_holm": p_holm, "verdict": _verdict(each, p_holm < level)}
        for each, p, p_holm in zip(found, together, corrected, strict=True)
    ]


def _together(paired_p: NDArray[np.float64], spread_p: NDArray[np.float64]) -> NDArray[np.float64]:
    """The smaller of two p-values, weighted by their shares of the level; NaN if both are NaN."""
    return np.minimum(np.fmin(paired_p / PAIRED_SHARE, spread_p / (1 - PAIRED_SHARE)), 1.0)


def _verdict(found: Compared, significant: bool) -> str:
    verdict = found.verdict or UNCHANGED
    if found.verdict is None and significant and found.matters:
        verdict = WORSE if found.difference > 0 else BETTER
    return MISSING if found.pairs.lacking and verdict != WORSE else verdict


def _line(pairs: Pairs) -> dict[str, Any]:
    """The columns that need no test: the cell and its means."""
    before, after = pairs.before, pairs.after
    if pairs.there == "both":
        measured = ~(np.isnan(before) & np.isnan(after))
        before, after = before[measured], after[measured]
    return {
        **dict(zip(CELL, pairs.cell, strict=True)),
        "metric": pairs.metric,
        "pairs": len(before) if pairs.there == "both" else 0,
        "baseline": _mean(before),
        "tonight": _mean(after),
    }


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else math.nan
