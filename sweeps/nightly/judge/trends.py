"""Does a value drift, a little every night, though no night is worse than the previous one?

The mean over seeds is followed through the nights with the Mann-Kendall test: without drift
every order of the nights is equally likely, and the p-value counts them all. It is exact for
any number of nights. The slopes of the single seeds have the same mean and would have to be
distinguished from chance by their spread over five seeds; fourteen nights say more.

Identical or nearly identical nights count as one night: a result reached once by chance and
kept for a week is not a trend. Nights are the same within a tenth of the smallest change that
matters, on every seed, from the first of a run of such nights: compared with only the previous
night, a drift in small steps would never be noticed.

Values that cannot be called drifting are excluded from the family of Holm's correction: those
whose nights lie closer together than the smallest change that matters, and those with so few
distinct nights that even a perfect order would not be significant. Neither depends on the order
of the nights, so the p-values remain valid (Tarone, Biometrics 46, 1990).

Costs are not followed: a machine is busier in some weeks than in others, so the orders of the
nights are not equally likely even without a change; the comparison with the baseline covers them.
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
"""The fraction of the smallest change that matters within which nights are the same."""


def trends(history: pd.DataFrame, settings: Judge) -> pd.DataFrame:
    """One line of ``TREND_COLUMNS`` per cell and metric over the last ``trend_nights`` nights.

    ``history`` has the results of complete nights with their ``night``, a date that sorts. It
    should begin with the night of the accepted baseline: the step to an accepted level is not
    drift. ``nights`` counts the nights that have the cell, ``distinct`` those that differ.
    ``slope`` is the Theil-Sen slope per night, ``total`` the slope times the nights from first
    to last; "drifting" upwards, or "better" downwards, needs ``p_holm`` below a fifth of the
    level, at least the smallest change that matters in total, and as much between the first
    night and the last: a value that has recovered is fixed, whatever the nights in between say.
    Only seeds present in all these nights count. Raises ``ValueError`` for a missing column.
    """
    wanted = ["night", *CELL, "seed", *settings.minimum]
    absent = [column for column in wanted if column not in history]
    if absent:
        raise ValueError(f"history: missing column {absent[0]!r}; required are {', '.join(wanted)}")
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
    """The line of a cell, from its nights (rows) and seeds (columns)."""
    names = ("first", "last", "slope", "total", "p", "p_holm")
    line: dict[str, Any] = dict.fromkeys(names, math.nan)
    line |= {"nights": 0, "distinct": 0, "verdict": UNCHANGED, "asked": False, "matters": False}
    # An infinite NLL has no slope; the comparison with the baseline reports it.
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
