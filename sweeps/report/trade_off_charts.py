"""Error against ECE, and ECE against the cost of training."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from sweeps.analysis.results import label
from sweeps.report.chart import Chart, Key, Look, settings, words
from sweeps.report.wording import seconds


def pareto_chart(
    points: pd.DataFrame,
    styles: Mapping[tuple[str, str], Look],
    used: Used,
    hypervolume: float = math.nan,
) -> Chart:
    """One dataset's rows by error and ECE; a line joins those that no other row beats in both.

    ``hypervolume`` is that of the front in units of the baseline's.
    """
    front = points[points["on_front"]].sort_values("error")
    layout = {
        "xaxis": {"title": {"text": "error on test data"}},
        "yaxis": {"title": {"text": "ECE on test data"}, "rangemode": "tozero"},
    }
    names = ", ".join(label(m, p) for m, p in zip(front["row"], front["calibrator"], strict=True))
    about = (
        "Every row by its error and ECE on test data (means over seeds); towards the lower left "
        f"is better. No row beats these in both: {names}. Colour shows the row, "
        "shape the calibrator."
    )
    if not math.isnan(hypervolume):
        about += f" Hypervolume {hypervolume:.2f}, where the baseline alone has 1."
    rows = _rows(points, "error", styles, used, "on_front")
    traces = [_front(front), *rows]
    return Chart("Error and calibration", about, traces, layout, 380, _keys(points, styles))


def cost_chart(points: pd.DataFrame, styles: Mapping[tuple[str, str], Look], used: Used) -> Chart:
    """One dataset's rows by the seconds of a training and ECE."""
    took = points["train_seconds"]
    wide = bool(took.min() > 0 and took.max() > 8 * took.min())
    layout = {
        "xaxis": {
            "title": {"text": "seconds of one training" + (" (log scale)" if wide else "")},
            "type": "log" if wide else "linear",
        }
        | ({} if wide else {"rangemode": "tozero"}),
        "yaxis": {"title": {"text": "ECE on test data"}, "rangemode": "tozero"},
    }
    about = (
        "The cost of calibration: the time of one training (calibrators add next to nothing) "
        "and the resulting ECE. No row beats the outlined ones in time, ECE and error at once."
    )
    traces = _rows(points, "train_seconds", styles, used, "on_cost_front")
    return Chart("Cost and calibration", about, traces, layout, 380, _keys(points, styles))


Used = Mapping[tuple[str, str], str]
"""The hyperparameters (JSON) of the confirmed trials, by dataset and row."""


def _front(front: pd.DataFrame) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "front",
        "x": front["error"].to_list(),
        "y": front["ece"].to_list(),
        "line": {"color": "--muted", "width": 1.2, "dash": "dot", "shape": "hv"},
        "hoverinfo": "skip",
    }


def _rows(
    points: pd.DataFrame,
    x: str,
    styles: Mapping[tuple[str, str], Look],
    used: Used,
    marked: str,
) -> list[dict[str, Any]]:
    """A trace for each method, so that the legend can show and hide it."""
    traces = []
    for method, rows in points.groupby("row", sort=False):
        pairs = list(zip(rows["row"], rows["calibrator"], strict=True))
        chosen = used.get((rows["dataset"].iloc[0], str(method)), "{}")
        hover = [
            f"<b>{words(label(row['row'], row['calibrator']))}</b>"
            f"<br>ECE {row['ece']:.4f}, error {row['error']:.4f}"
            f"<br>{seconds(row['train_seconds'])} of training"
            f"<br>{words(settings(json.loads(chosen)))}"
            for _, row in rows.iterrows()
        ]
        front = rows[marked].to_list()
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": words(str(method)),
                "group": str(method),
                "x": rows[x].to_list(),
                "y": rows["ece"].to_list(),
                "hovertext": hover,
                "hoverinfo": "text",
                "marker": {
                    "color": styles[pairs[0]].colour,
                    "symbol": [styles[pair].symbol for pair in pairs],
                    "size": [12 if best else 8 for best in front],
                    "line": {"color": "--ink", "width": [1.6 if best else 0 for best in front]},
                },
            }
        )
    return traces


def _keys(points: pd.DataFrame, styles: Mapping[tuple[str, str], Look]) -> list[Key]:
    firsts = points.drop_duplicates("row")
    keys = [
        Key(method, method, styles[method, calibrator]._replace(symbol="circle"), line=False)
        for method, calibrator in zip(firsts["row"], firsts["calibrator"], strict=True)
    ]
    there = set(points["calibrator"])
    calibrators = {
        calibrator: look for (_, calibrator), look in styles.items() if calibrator in there
    }
    keys += [
        Key(
            "no calibrator" if calibrator == "identity" else calibrator,
            "",
            look._replace(colour="--muted"),
            line=False,
        )
        for calibrator, look in calibrators.items()
    ]
    return keys
