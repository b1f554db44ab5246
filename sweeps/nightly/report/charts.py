"""A cell's history as a chart: one metric over the nights, with its interval over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from calibration.metrics import METRICS
from calibration.text import count
from sweeps.analysis.statistics import mean_interval
from sweeps.nightly.archive.baseline import AcceptedNight
from sweeps.nightly.archive.history import comparable
from sweeps.nightly.archive.nights import Nights
from sweeps.nightly.archive.results import cells
from sweeps.nightly.judge.rules import COST
from sweeps.nightly.judge.verdict import PastVerdicts, Verdict, past_verdicts
from sweeps.nightly.judge.wording import cell_name
from sweeps.report.chart import Chart, words

MOST_NIGHTS = 45
_COLOURS = {
    "worse": "--bad",
    "missing": "--bad",
    "drifting": "--over",
    "better": "--good",
    "baseline": "--ink",
}
USUAL = "--series-0"


class ChartData(NamedTuple):
    """The data shared by all charts of a page."""

    history: pd.DataFrame
    baseline: pd.DataFrame
    baseline_night: str
    verdicts: PastVerdicts


def chart_data(
    nights: Nights, verdict: Verdict, history: pd.DataFrame, baseline: AcceptedNight | None
) -> ChartData:
    """The data of the page's charts: results and verdicts of tonight and of earlier nights."""
    empty = history.iloc[:0]
    recent = history[history["night"] <= verdict.night]
    if baseline is None:
        return ChartData(recent, empty, "", {})
    at_speed = comparable(recent, "", baseline.reference)
    verdicts = past_verdicts(nights, [str(night) for night in recent["night"].unique()])
    work = baseline.results.get("work_seconds", math.nan)
    return ChartData(at_speed, baseline.results.assign(cost=work), baseline.about.night, verdicts)


def title(metric: str) -> str:
    """The title of a chart."""
    cost = "training work, seconds at the baseline's pace"
    return cost if metric == COST else METRICS.title(metric)


def cells_of(frame: pd.DataFrame, metric: str) -> list[tuple[str, ...]]:
    """The cells that have a value of a metric; costs belong to trainings, not to calibrators."""
    if metric not in frame:
        return []
    there = frame[frame[metric].notna()]
    if metric == COST:
        there = there.assign(calibrator="")
    return cells(there)


def history_chart(cell: tuple[str, ...], metric: str, shown: ChartData) -> Chart:
    """The mean of a metric over the nights; the dashed line is the baseline's mean."""
    points = _points(_of(shown.history, cell, metric), metric)
    nights = [night for night, *_ in points]
    line: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": nights,
        "y": [mean for _, mean, _, _ in points],
        "line": {"color": USUAL, "width": 1},
        "marker": {
            "color": [_colour(cell, metric, night, shown) for night in nights],
            "size": [6 if _colour(cell, metric, n, shown) == USUAL else 9 for n in nights],
            "opacity": 1,
            "symbol": [_symbol(night, shown) for night in nights],
        },
        "text": [_hover_text(cell, metric, night, shown) for night in nights],
        "hovertemplate": "%{x|%-d %b %Y}<br>%{y:.4f} %{text}<extra></extra>",
    }
    heading = f"{cell_name(cell)}, {title(metric)}"
    about = f"{title(metric)} of {cell_name(cell)} over {count(len(nights), 'night')}"
    traces = [*_band(points), *_base_line(cell, metric, shown, nights), line]
    return Chart(heading, about, traces, _layout(), 170, small=True)


def _layout() -> dict[str, Any]:
    return {
        "xaxis": {"type": "date", "tickformat": "%-d %b", "nticks": 4},
        "yaxis": {"nticks": 4},
        "margin": {"l": 44, "r": 8, "t": 6, "b": 24},
    }


def _of(frame: pd.DataFrame, cell: tuple[str, ...], metric: str) -> pd.DataFrame:
    sweep, dataset, method, calibrator = cell
    mine = (frame["sweep"] == sweep) & (frame["dataset"] == dataset) & (frame["row"] == method)
    found = frame[mine] if metric == COST else frame[mine & (frame["calibrator"] == calibrator)]
    if metric == COST:
        by = ["night", "seed"] if "night" in found else ["seed"]
        found = found.drop_duplicates(by)
    return found


def _points(rows: pd.DataFrame, metric: str) -> list[tuple[str, float, float, float]]:
    found = []
    for night, group in list(rows.groupby("night"))[-MOST_NIGHTS:]:
        values = group[metric].dropna().to_numpy(dtype=np.float64)
        if len(values):
            low, high = mean_interval(values)
            found.append((str(night), float(values.mean()), max(low, 0.0), high))
    return found


def _band(points: Sequence[tuple[str, float, float, float]]) -> list[dict[str, Any]]:
    """The intervals, where there are any: one seed has none."""
    known = [(night, low, high) for night, _, low, high in points if np.isfinite(high)]
    edge = {"type": "scatter", "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
    low = edge | {"x": [night for night, *_ in known], "y": [low for _, low, _ in known]}
    high = edge | {"x": low["x"], "y": [high for *_, high in known]}
    return [low, high | {"fill": "tonexty", "fillcolor": "--line"}] if known else []


def _base_line(
    cell: tuple[str, ...], metric: str, shown: ChartData, nights: Sequence[str]
) -> list[dict[str, Any]]:
    if shown.baseline.empty or not nights:
        return []
    rows = _of(shown.baseline, cell, metric)
    mean = rows[metric].mean()
    if not np.isfinite(mean):
        return []
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [min(nights[0], shown.baseline_night), nights[-1]],
            "y": [mean, mean],
            "line": {"color": "--muted", "dash": "dash", "width": 1},
            "hoverinfo": "skip",
        }
    ]


def _colour(cell: tuple[str, ...], metric: str, night: str, shown: ChartData) -> str:
    verdict = shown.verdicts.get((*cell, metric, night), "")
    return _COLOURS.get("baseline" if night == shown.baseline_night else verdict, USUAL)


def _symbol(night: str, shown: ChartData) -> str:
    return "diamond" if night == shown.baseline_night else "circle"


def _hover_text(cell: tuple[str, ...], metric: str, night: str, shown: ChartData) -> str:
    if night == shown.baseline_night:
        return "baseline"
    return words(shown.verdicts.get((*cell, metric, night), ""))
