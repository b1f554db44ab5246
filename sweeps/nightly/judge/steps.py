"""Since when? Steps in the nights' history, cell by cell, from one level to another.

The mean over seeds is followed from the baseline's night on. A significant step (corrected for
its location, and by Holm over all cells and metrics) is a regression of its own: thirty nights
show what the seeds of one night do not. Nearly identical nights count as one night, as for
trends: a level reached once by chance, and kept, is shown by the paired test or not at all.

If a value is worse tonight by any test, the most likely location of the step says since when,
and the revisions of the two nights around it name the suspects.

Standard deviations between nights are taken to be at least half the smallest change that matters.
Steps in costs, and in that of all trainings together, are located but not tested: a machine's
load varies from week to week.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sweeps.analysis.statistics import change_point, change_points, distinct_runs, holm
from sweeps.nightly.archive.results import CELL
from sweeps.nightly.judge.rules import (
    ALL,
    BETTER,
    COST,
    STEP_COLUMNS,
    UNCHANGED,
    WORSE,
    Judge,
    matters,
    value_key,
)
from sweeps.nightly.judge.trends import SAME

STEP_NIGHTS = 60
_Key = tuple[str, ...]


class Since(NamedTuple):
    """The first night of a new level, the last one before it, and the revisions of both."""

    night: str
    last_before: str
    revision_before: str
    revision: str


def steps(history: pd.DataFrame, settings: Judge) -> pd.DataFrame:
    """One line of ``STEP_COLUMNS`` per cell and metric over the last nights, the costs' too.

    ``history`` is as for ``trends``, with each night's ``git`` revision. ``since`` is the first
    night of the level that lasts until the end, significant or merely the likeliest, and
    ``last_before`` the night before it; empty if all nights are identical. "worse" needs
    ``p_holm`` below its share of the level, and at least the smallest change that matters from
    the first level to the last; empty series have no line.
    """
    nights = sorted(history["night"].unique())[-STEP_NIGHTS:]
    recent = history[history["night"].isin(nights)]
    lines = list(_lines(recent, settings)) if len(recent) else []
    for line, p_holm in zip(lines, holm([line["p"] for line in lines]), strict=True):
        line["p_holm"] = p_holm
        if line["matters"] and p_holm < settings.step_level:
            line["verdict"] = WORSE if line["after"] > line["before"] else BETTER
    return pd.DataFrame(lines, columns=STEP_COLUMNS)


def since(table: pd.DataFrame, history: pd.DataFrame) -> dict[_Key, Since]:
    """By cell and metric, since when the present level has lasted; only where there is a step."""
    revisions = dict(zip(history["night"], history["git"], strict=True))
    return {
        value_key(line): Since(
            line["since"],
            line["last_before"],
            str(revisions.get(line["last_before"], "")),
            str(revisions.get(line["since"], "")),
        )
        for line in table.to_dict("records")
        if line["since"]
    }


def _lines(recent: pd.DataFrame, settings: Judge) -> Iterator[dict[str, Any]]:
    trainings = recent.assign(calibrator="").drop_duplicates(["night", *CELL, "seed"])
    for frame, minimum in ((recent, settings.minimum), (trainings, {COST: 0.0})):
        names = [name for name in minimum if name in frame]
        by_seed = frame.set_index([*CELL, "night", "seed"])[names].unstack("seed")
        nights = by_seed.index.get_level_values("night").to_numpy()
        for cell, rows in by_seed.groupby(level=CELL).indices.items():
            assert isinstance(cell, tuple)
            for metric in names:
                values = by_seed[metric].to_numpy(dtype=np.float64)[rows]
                line = _line(values, nights[rows], minimum[metric], settings)
                if line is not None:
                    yield {**dict(zip(CELL, cell, strict=True)), "metric": metric, **line}
    if COST in recent:
        yield from _total(trainings, settings)


def _total(trainings: pd.DataFrame, settings: Judge) -> Iterator[dict[str, Any]]:
    """The geometric mean cost of the trainings that all nights have."""
    table = trainings.pivot(index="night", columns=[*CELL, "seed"], values=COST)
    shared = table.where(table > 0).dropna(axis="index", how="all").dropna(axis="columns")
    if shared.T.groupby(level=CELL).ngroups > 1:
        means = np.exp(np.log(shared.to_numpy(dtype=np.float64)).mean(axis=1, keepdims=True))
        line = _line(means, shared.index.to_numpy(), 0.0, settings)
        assert line is not None, "there are costs"
        yield {**dict(zip(CELL, ALL, strict=True)), "metric": COST, **line}


def _line(
    values: NDArray[np.float64], nights: NDArray[np.str_], minimum: float, settings: Judge
) -> dict[str, Any] | None:
    """The line of a cell, from its nights (rows) and seeds (columns); a minimum of 0: no test."""
    known = np.isfinite(values)
    measured = known.any(axis=1)
    rows, when = values[measured][:, known[measured].all(axis=0)], nights[measured]
    if not rows.size:
        return None
    means = rows.mean(axis=1)
    starts = distinct_runs(rows, SAME * minimum)
    line: dict[str, Any] = {"nights": len(rows), "distinct": len(starts), "since": ""}
    line |= {"last_before": "", "before": means[0], "after": means[-1], "p": math.nan}
    line |= {"p_holm": math.nan, "verdict": UNCHANGED, "matters": False}
    if len(distinct_runs(rows)) == 1:
        return line
    # Costs are ratios: their smallest change that matters is relative.
    noise = (minimum or settings.cost * float(means.mean())) / 2
    levels = [0, *change_points(means, least_deviation=noise)]
    if minimum:
        # The last step only: earlier steps were fixed since, or judged long ago.
        begin = levels[-2] if len(levels) > 2 else 0
        series = means[starts[starts >= begin]]
        tested = change_point(series, least_deviation=noise)
        line["p"] = math.nan if tested is None else tested.p
    if len(levels) == 1:  # none is significant: the likeliest
        likeliest = change_point(means, least_deviation=noise)
        assert likeliest is not None, "two nights or more differ"
        levels.append(likeliest.place)
    heights = [float(part.mean()) for part in np.split(means, levels[1:])]
    total = heights[-1] - heights[0]
    line |= {"before": heights[0], "after": heights[-1]}
    # A partial recovery does not restart the clock: worse since it got worse.
    along = [at for at, step in zip(levels[1:], np.diff(heights), strict=True) if step * total > 0]
    index = along[-1] if along else levels[-1]
    line["matters"] = bool(minimum) and matters(total, minimum) and index == levels[-1]
    return line | {"since": str(when[index]), "last_before": str(when[index - 1])}
