"""Does a value drift, a little every night, though no night is worse than the one before?

The mean over seeds is followed through the nights, with the test of Mann and Kendall: given
no drift every order of the nights is equally likely, and the p-value counts them all. It is
exact with any number of nights. The slopes of the single seeds have the same mean and would
have to be told from chance by their spread over five seeds; fourteen nights say more.

Nights that are identical, or all but identical, are one night: a result that was reached by
chance once and stays for a week is no trend. What counts as the same is a tenth of the
smallest change that matters, on every seed, from the first night of a run of like nights:
compared with the night before only, a drift in small steps would never be seen.

Left out of the family of Holm's correction is what cannot be called drifting: a value whose
nights lie closer together than the smallest change that matters, or that has so few different
nights that not even a perfect order would show anything. Neither depends on the order of the
nights, so that p-values keep their meaning (Tarone, Biometrics 46, 1990).

Costs are not followed: a machine is busier in some weeks than in others, so that the order of
nights is not equally likely without any change; the comparison with the baseline sees them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from sweeps.analysis.statistics import distinct_runs, holm, mann_kendall
from sweeps.nightly.archive.results import CELL
from sweeps.nightly.judge.rules import (
    BETTER,
    DRIFTING,
    IDENTICAL,
    TREND_COLUMNS,
    UNCHANGED,
    Judge,
    matters,
)

SAME = 0.1
"""The part of the smallest change that matters within which nights are the same."""


def trends(history: pd.DataFrame, settings: Judge) -> pd.DataFrame:
    """One line of ``TREND_COLUMNS`` per cell and metric over the last ``trend_nights`` nights.

    ``history`` has the results of complete nights with their ``night``, a date that sorts. It
    should begin with the night of the accepted baseline: the step to what was accepted is no
    drift. ``nights`` have the cell, ``distinct`` of them differ. ``slope`` is Theil and Sen's
    per night, ``total`` what it comes to from the first night to the last; "drifting" upwards,
    or "better" downwards, needs ``p_holm`` below the level's fifth and at least the smallest
    change that matters in total, and as much between the first night and the last: what has
    come back is mended, whatever the nights between say. Only seeds of all these nights count.
    Raises ``ValueError`` for a column that is missing.
    """
    wanted = ["night", *CELL, "seed", *settings.minimum]
    absent = [column for column in wanted if column not in history]
    if absent:
        raise ValueError(
            f"history: there is no column {absent[0]!r}; {', '.join(wanted)} are needed"
        )
    nights = sorted(history["night"].unique())[-settings.trend_nights :]
    recent = history[history["night"].isin(nights)]
    places = {night: place for place, night in enumerate(nights)}
    recent = recent.assign(night=recent["night"].map(places).astype(int))
    lines = list(_lines(recent, settings)) if len(recent) else []
    asked = [line["p"] if line["asked"] else math.nan for line in lines]
    for line, p_holm in zip(lines, holm(asked), strict=True):
        line["p_holm"] = p_holm
        if line["matters"] and p_holm < settings.trend_level:
            line["verdict"] = DRIFTING if line["total"] > 0 else BETTER
    return pd.DataFrame(lines, columns=TREND_COLUMNS)


def _lines(recent: pd.DataFrame, settings: Judge) -> Iterator[dict[str, Any]]:
    by_seed = recent.set_index([*CELL, "night", "seed"])[list(settings.minimum)].unstack("seed")
    tables = {name: by_seed[name].to_numpy(dtype=np.float64) for name in settings.minimum}
    nights = by_seed.index.get_level_values("night").to_numpy(dtype=np.float64)
    for cell, rows in by_seed.groupby(level=CELL).indices.items():
        assert isinstance(cell, tuple)
        named = dict(zip(CELL, cell, strict=True))
        for metric, minimum in settings.minimum.items():
            line = _line(tables[metric][rows], nights[rows], minimum, settings.trend_level)
            yield named | {"metric": metric} | line


def _line(
    values: NDArray[np.float64], nights: NDArray[np.float64], minimum: float, level: float
) -> dict[str, Any]:
    """What the nights (rows) of a cell's seeds (columns) come to."""
    names = ("first", "last", "slope", "total", "p", "p_holm")
    line: dict[str, Any] = dict.fromkeys(names, math.nan)
    line |= {"nights": 0, "distinct": 0, "verdict": UNCHANGED, "asked": False, "matters": False}
    # An infinite NLL has no place on a line; the comparison with the baseline speaks of it.
    known = np.isfinite(values)
    measured = known.any(axis=1)
    rows, times = values[measured][:, known[measured].all(axis=0)], nights[measured]
    if not rows.size:
        return line
    starts = distinct_runs(rows, SAME * minimum)
    means, when = rows.mean(axis=1), times[starts]
    line |= {"nights": len(rows), "distinct": len(starts), "first": means[0], "last": means[-1]}
    if len(distinct_runs(rows)) == 1:
        return line | {"slope": 0.0, "total": 0.0, "verdict": IDENTICAL}
    if len(starts) < 2:
        return line
    series = means[starts]
    slope, test = float(stats.theilslopes(series, when).slope), mann_kendall(series)
    total = slope * (when[-1] - when[0])
    spread = float(series.max() - series.min())
    between = float(means[-1] - means[0])
    return line | {
        "slope": slope,
        "total": total,
        "p": test.p,
        "asked": matters(spread, minimum) and test.least_p < level,
        "matters": matters(total, minimum) and matters(between, minimum) and total * between > 0,
    }
