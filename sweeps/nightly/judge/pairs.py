"""Two nights side by side: for every cell and metric, the values of their common seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sweeps.nightly.archive.results import CELL, TIMES, reference_seconds
from sweeps.nightly.judge.rules import COST

_Cell = tuple[str, str, str, str]
Values = NDArray[np.float64]


class Pairs(NamedTuple):
    """A cell's values of one metric, before and after, seed by seed.

    ``lacking`` counts the seeds of the baseline without a row tonight. If only one of the
    nights has the cell, ``before`` or ``after`` has all its values and the other is empty.
    """

    cell: _Cell
    metric: str
    there: Literal["both", "baseline", "tonight"]
    before: Values
    after: Values
    lacking: int = 0


def paired(
    tonight: pd.DataFrame, baseline: pd.DataFrame, metrics: Sequence[str]
) -> tuple[list[Pairs], list[Pairs]]:
    """The cells of either night in each metric, and the cost of their trainings.

    Costs are seconds of work at the baseline's pace (see ``judge.costs``), one per trained row and
    seed, under no calibrator (``""``): all calibrators of a seed share its one training. The
    order of rows does not matter.
    Raises ``ValueError`` for a missing column and for a duplicate seed.
    """
    before, after = _checked(baseline, "baseline", metrics), _checked(tonight, "tonight", metrics)
    measured = (reference_seconds(before), reference_seconds(after))
    pace = next((seconds for seconds in measured if seconds > 0), 1.0)
    trainings = _side_by_side(_trainings(before, pace), _trainings(after, pace), {COST: COST})
    return list(_side_by_side(before, after, {name: name for name in metrics})), list(trainings)


def _checked(frame: pd.DataFrame, name: str, metrics: Sequence[str]) -> pd.DataFrame:
    wanted = [*CELL, "seed", *metrics, *TIMES]
    absent = [column for column in wanted if column not in frame]
    if absent:
        raise ValueError(f"{name}: missing column {absent[0]!r}; required are {', '.join(wanted)}")
    keys = [*CELL, "seed"]
    twice = frame[frame.duplicated(keys)]
    if len(twice):
        cell = ", ".join(str(value) for value in twice.iloc[0][keys])
        raise ValueError(f"{name}: duplicate {cell}; write one row per cell and seed")
    # The same types on both sides: a night without results has none of its own.
    types = dict.fromkeys(CELL, "str") | {"seed": "int64"}
    types |= dict.fromkeys([*metrics, *TIMES], "float64")
    return frame[wanted].astype(types).sort_values(keys)


def _trainings(frame: pd.DataFrame, pace: float) -> pd.DataFrame:
    known = frame["reference"].where(frame["reference"] > 0)
    cost = frame["work_seconds"] / known * pace
    rows = frame.assign(cost=cost, calibrator="").dropna(subset=COST)
    return rows.drop_duplicates([*CELL, "seed"])


def _side_by_side(
    before: pd.DataFrame, after: pd.DataFrame, columns: Mapping[str, str]
) -> Iterator[Pairs]:
    """The pairs of the columns under the names of their metrics, in the order of cells."""
    keys, ends = [*CELL, "seed"], ("_before", "_after")
    rows = before[[*keys, *columns]].merge(
        after[[*keys, *columns]], on=keys, how="outer", suffixes=ends, indicator="there"
    )
    for (sweep, dataset, method, calibrator), seeds in rows.groupby(CELL):
        cell = str(sweep), str(dataset), str(method), str(calibrator)
        there = seeds["there"].to_numpy(dtype=str)
        for column, metric in columns.items():
            old, new = (seeds[column + end].to_numpy(dtype=np.float64) for end in ends)
            yield _pairs(cell, metric, there, old, new)


def _pairs(
    cell: _Cell, metric: str, there: NDArray[np.str_], before: Values, after: Values
) -> Pairs:
    if (there == "left_only").all():
        return Pairs(cell, metric, "baseline", before, np.empty(0), len(before))
    if (there == "right_only").all():
        return Pairs(cell, metric, "tonight", np.empty(0), after)
    shared = there == "both"
    lacking = int(np.count_nonzero(there == "left_only"))
    return Pairs(cell, metric, "both", before[shared], after[shared], lacking)
