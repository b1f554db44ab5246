"""Tags of confirmed runs at a sweep's end: place, chosen calibrator, colour."""

from __future__ import annotations

import math

import pandas as pd

from sweeps.analysis import Analysis
from sweeps.analysis.selection import CHOSEN_BY
from sweeps.engine.plan import Plan
from sweeps.tracking.mlflow.run_content import (
    CALIBRATOR,
    COLOUR,
    DECIDED,
    ROW_PLACE,
    TESTED,
    WINNER,
)

COLOURS = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7b5ea7"),
    *("#8c564b", "#5f8f00", "#b22234", "#1f9e9e", "#66717c"),
)
"""One per row of a spec, repeated if there are more rows."""


def chosen_marks(plan: Plan, analysis: Analysis) -> dict[tuple[str, str], dict[str, str]]:
    """The tags of the runs of every (dataset, row) for which a calibrator was chosen.

    The winner has the first place of its dataset, the others follow by the deciding metric.
    Places have as many digits as the last, so that their texts sort like numbers.
    """
    rows = list(plan.spec.methods)
    digits = len(str(len(rows)))
    marks: dict[tuple[str, str], dict[str, str]] = {}
    table = analysis.leaderboard
    chosen = table[table["chosen"].astype(bool)] if len(table) else table
    for dataset, lines in chosen.groupby("dataset", sort=False):
        ordered = lines.assign(lost=~lines["winner"].astype(bool)).sort_values(
            ["lost", CHOSEN_BY], kind="stable"
        )
        for place, (_, line) in enumerate(ordered.iterrows(), 1):
            row = str(line["row"])
            marks[str(dataset), row] = {
                ROW_PLACE: f"{place:0{digits}d}",
                WINNER: str(bool(line["winner"])).lower(),
                CALIBRATOR: str(line["calibrator"]),
                DECIDED: _mean(line, CHOSEN_BY),
                TESTED: _mean(line, CHOSEN_BY.removeprefix("validation/")),
                COLOUR: COLOURS[rows.index(row) % len(COLOURS)],
            }
    return marks


def _mean(line: pd.Series, column: str) -> str:
    """``0.3016 ± 0.0518``: mean and standard deviation over the seeds."""
    mean, deviation = float(line[column]), float(line.get(f"{column}_sd", math.nan))
    return f"{mean:.4f}" if math.isnan(deviation) else f"{mean:.4f} ± {deviation:.4f}"
