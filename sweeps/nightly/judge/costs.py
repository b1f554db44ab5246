"""Does training cost more than it did? Work, not time, relative to reference work between epochs.

A training's cost is its CPU seconds (on a GPU: seconds) divided by those of a unit of reference
work, which its own process repeats between epochs: whatever the machine did to the one, it did
to the other. The reference work is frozen and uses nothing of this project, so code that is
slower everywhere is noticed too: all trainings together are one more line.

If other processes used the cores, caches and clock rates were shared in ways that the reference
work does not capture to within a few per cent: then there is no verdict ("busy machine"). The
sign of it is reference work whose wall-clock time exceeds its CPU time.

A GPU's load is not noticed. ``tests/sweeps/nightly/judge/test_costs.py`` measures how often the
verdict errs on real timings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sweeps.analysis.statistics import noisy_t_test
from sweeps.nightly.archive.results import CELL
from sweeps.nightly.judge.comparison import FEWEST, Compared, known_without_test
from sweeps.nightly.judge.pairs import Pairs
from sweeps.nightly.judge.rules import ALL, BUSY_MACHINE, COST, TOO_FEW_PAIRS, matters

MOST_BUSY = 1.5
"""The largest ratio of wall-clock to CPU time of the reference work that allows a verdict."""
_Cell = tuple[str, ...]


def compare_costs(
    costs: Sequence[Pairs], minimum: float, busy: Mapping[_Cell, float]
) -> list[Compared]:
    """Compare the work of every training, and of all together: tonight's over the baseline's.

    Mean logarithms are compared. A cell's seeds run at the same time and share noise that their
    spread does not show: it is taken to have a standard deviation of a third of the smallest
    change that matters, 1 + ``minimum``. So is the noise that all cells of a night share.
    Differences and intervals are relative changes. ``busy`` gives for every cell how busy the
    machine was, on the busier of the two nights.
    """
    least = math.log1p(minimum)
    found = [_cost(each, busy.get(each.cell, 1.0), least) for each in costs]
    judged = [each.pairs for each in found if not math.isnan(each.paired_p)]
    if len(judged) < 2:
        return found
    changes = np.array([_log_ratio(pairs).mean() for pairs in judged])
    before, after = (
        np.array([float(np.mean(values)) for values in side])
        for side in ([each.before for each in judged], [each.after for each in judged])
    )
    return [_tested(Pairs(ALL, COST, "both", before, after), changes, least), *found]


def busiest(*nights: pd.DataFrame) -> dict[_Cell, float]:
    """How busy the machine was while each cell trained, on the busiest of the nights."""
    found: dict[_Cell, float] = {}
    for night in nights:
        if "busy" not in night:
            continue
        means = night.assign(calibrator="").groupby(CELL)["busy"].mean()
        for cell, value in means.dropna().items():
            assert isinstance(cell, tuple)
            found[cell] = max(found.get(cell, 1.0), float(value))
    return found


def _cost(pairs: Pairs, busy: float, least: float) -> Compared:
    if pairs.there != "both" or np.array_equal(pairs.before, pairs.after):
        return Compared(pairs, known_without_test(pairs))
    change = _log_ratio(pairs)
    if len(change) < FEWEST:
        return Compared(pairs, TOO_FEW_PAIRS)
    if busy > MOST_BUSY:
        return Compared(pairs, BUSY_MACHINE)
    return _tested(pairs, change, least)


def _tested(pairs: Pairs, change: NDArray[np.float64], least: float) -> Compared:
    test = noisy_t_test(change, least / 3)
    return Compared(
        pairs,
        difference=math.expm1(test.difference),
        low=math.expm1(test.low),
        high=math.expm1(test.high),
        paired_p=test.p,
        moved=True,
        matters=matters(test.difference, least),
    )


def _log_ratio(pairs: Pairs) -> NDArray[np.float64]:
    """Log ratios of the seeds that took a measurable time in both nights."""
    there = (pairs.before > 0) & (pairs.after > 0)
    return np.asarray(np.log(pairs.after[there] / pairs.before[there]))
