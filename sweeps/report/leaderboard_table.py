"""The leaderboard of a page: every row, with intervals drawn on one scale per metric."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from markupsafe import Markup

from calibration.metrics import METRICS, Shown
from calibration.text import count
from sweeps.analysis.results import label
from sweeps.analysis.selection import CHOSEN_BY
from sweeps.report.columns import DECIDING_TITLE, deciding_first
from sweeps.report.table import Head, SortableTable, TableCell, TableRow
from sweeps.report.templates import NOTHING, macro
from sweeps.report.wording import bounds, interval, number, p_value, seconds
from sweeps.spec import ORACLE

_WIDTH, _HEIGHT, _MARGIN = 128, 12, 4
SHOWN_VERDICTS = 1
"""More columns of words would push the cost off the page: they are hidden at first."""


_DECIDES = "orders and chooses the rows: cross-fitted, mean ± standard deviation over seeds"


class Scale(NamedTuple):
    """The common scale of one metric's bars."""

    low: float
    high: float

    def x(self, number: float) -> float:
        """The position of a number in a bar, clipped at its ends."""
        share = (number - self.low) / (self.high - self.low)
        return round(_MARGIN + (_WIDTH - 2 * _MARGIN) * min(1.0, max(0.0, share)), 1)


class RowVerdict(NamedTuple):
    """A row against the baseline: the words, the p-value, and the difference to sort by."""

    words: str
    p: float = math.nan
    difference: float = math.nan


RowVerdicts = Mapping[tuple[str, str, str], RowVerdict]
"""By row, calibrator and metric."""


def leaderboard_table(
    name: str,
    rows: pd.DataFrame,
    headline: pd.DataFrame,
    verdicts: RowVerdicts,
    baseline: str,
    seeds_planned: int,
) -> SortableTable:
    """One dataset's rows as a sortable table.

    Those of ``rows`` that are not in ``headline`` are hidden at first. Raises
    ``KeyError`` if ``rows`` has no ECE.
    """
    drawn = deciding_first(m for m in METRICS.names(Shown.LEADERBOARD) if m in rows)
    others = [metric for metric in METRICS.names(Shown.FURTHER) if metric not in drawn]
    further = [metric for metric in others if metric in rows and rows[metric].notna().any()]
    scales = {metric: scale(headline, metric) for metric in drawn}
    compared = [m for m in drawn if any(key[2] == m for key in verdicts)]
    timed = "train_seconds" in rows
    heads = [Head("row", "sorts by the order on validation data")]
    decided = CHOSEN_BY in rows
    heads += [Head(DECIDING_TITLE, _DECIDES, "number")] if decided else []
    heads += [Head(METRICS.title(m), _about(m), _kind_of(m), scales[m]) for m in drawn]
    heads += [
        Head(
            f"{METRICS.title(m)} vs {baseline}",
            "paired over seeds, p corrected (Holm); sorts by the difference in " + METRICS.title(m),
            "words" if place < SHOWN_VERDICTS else "words further",
        )
        for place, m in enumerate(compared)
    ]
    heads.append(Head("floor", "the ECE that this row would show by chance if it were calibrated"))
    repeated = seeds_planned > 1
    heads += [Head("seeds", "how many trainings were measured")] if repeated else []
    heads += [Head("train", "seconds of one training, mean over seeds")] if timed else []
    heads += [Head(METRICS.title(m), kind="further") for m in further]
    made = []
    for place, (index, row) in enumerate(rows.iterrows()):
        oracle = row["row"] == ORACLE
        cells = [TableCell(_name(row, seeds_planned), float(place))]
        cells += [_decided(row)] if decided else []
        cells += [_drawn(row, m, scales[m]) for m in drawn]
        cells += [_verdict(row, m, verdicts) for m in compared]
        cells.append(TableCell(number(row["floor"]), row["floor"]))
        cells += [TableCell(str(int(row["seeds"])), row["seeds"])] if repeated else []
        if timed:
            took = math.nan if oracle else float(row["train_seconds"])
            cells.append(TableCell("" if oracle else seconds(took), took))
        cells += [TableCell(number(row[m]), row[m]) for m in further]
        made.append(TableRow(cells, _kind(row, index in headline.index)))
    return SortableTable(f"Leaderboard of {name}", heads, made, "leaderboard")


def scale(rows: pd.DataFrame, metric: str) -> Scale:
    """A scale on which the rows can be distinguished: an outlier does not squeeze the rest.

    ECE starts at zero, which is perfect calibration; other metrics where the data do.
    """
    means = rows[metric][np.isfinite(rows[metric])]
    lows = rows.get(f"{metric}_ci_low", means).loc[means.index].fillna(means)
    highs = rows.get(f"{metric}_ci_high", means).loc[means.index].fillna(means)
    if means.empty:
        return Scale(0.0, 1.0)
    low = 0.0 if metric == "ece" else float(min(lows.min(), means.min()))
    middle = float(np.median(highs))
    high = min(float(highs.max()), low + 4 * (middle - low))
    if high > low:
        return Scale(low, high)
    return Scale(0.9 * low, 1.1 * low) if low > 0 else Scale(0.0, 1.0)


def bar(row: pd.Series, metric: str, at: Scale) -> Markup:
    """A mean and its interval as a small drawing; for ECE a tick marks the noise floor."""
    mean = float(row[metric])
    if math.isnan(mean):
        return NOTHING
    low, high = bounds(row, metric)
    floor = row["floor"] if metric == "ece" else math.nan
    return macro("cells", "bar")(
        _WIDTH,
        _HEIGHT,
        interval=None if math.isnan(low) or math.isnan(high) else (at.x(low), at.x(high)),
        floor=None if math.isnan(floor) else at.x(floor),
        mean=None if mean > at.high else at.x(mean),
        end=_WIDTH - _MARGIN,
    )


def _about(metric: str) -> str:
    tick = "; the tick is the noise floor" if metric == "ece" else ""
    return f"{METRICS[metric].description}, on test data{tick}"


def _kind_of(metric: str) -> str:
    """Metrics outside the headline are hidden at first."""
    return "drawn" if METRICS[metric].shown == Shown.HEADLINE else "drawn further"


def _drawn(row: pd.Series, metric: str, at: Scale) -> TableCell:
    mean = float(row[metric])
    drawn = bar(row, metric, at)
    return TableCell(macro("cells", "measured")(number(mean), interval(row, metric), drawn), mean)


def _decided(row: pd.Series) -> TableCell:
    mean, deviation = float(row[CHOSEN_BY]), float(row.get(f"{CHOSEN_BY}_sd", math.nan))
    spread = "" if math.isnan(deviation) else f"±{deviation:.3f}"
    return TableCell(macro("cells", "measured")(number(mean), spread, NOTHING), mean)


def _verdict(row: pd.Series, metric: str, verdicts: RowVerdicts) -> TableCell:
    found = verdicts.get((row["row"], row["calibrator"], metric))
    if found is None:
        return TableCell("", math.nan)
    return TableCell(macro("macros", "verdict")(found.words, p_value(found.p)), found.difference)


def _name(row: pd.Series, seeds_planned: int) -> Markup:
    seeds = int(row["seeds"])
    unconverged = round((1 - row["converged"]) * seeds)
    where = f" on {unconverged} of {count(seeds, 'seed')}" if seeds_planned > 1 else ""
    return macro("cells", "name")(
        label(row["row"], row["calibrator"]),
        winner=row.get("winner", False),
        failed=seeds_planned - seeds,
        planned=seeds_planned,
        converged=row["converged"] >= 1,
        where=where,
    )


def _kind(row: pd.Series, is_headline: bool) -> str:
    kinds = []
    if row.get("winner", False):
        kinds.append("winner")
    if row["row"] == ORACLE:
        kinds.append("oracle")
    if not is_headline:
        kinds.append("minor")
    return " ".join(kinds)
