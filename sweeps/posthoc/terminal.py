"""The leaderboard of stored predictions in the terminal."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from rich.console import Console

from calibration.metrics import METRICS, Shown
from sweeps.analysis.selection import CHOSEN_BY
from sweeps.analysis.verdicts import EQUIVALENT, SHOWN_BETTER, SHOWN_WORSE
from sweeps.host.text_table import TextColumn, TextTable
from sweeps.posthoc.evaluation import StoredEvaluation
from sweeps.posthoc.wording import FLATTERED, procedure
from sweeps.report.columns import DECIDING_HEAD, DECIDING_TITLE, deciding_first
from sweeps.report.terminal import not_shown, print_blindness
from sweeps.report.wording import convergence_note, count, dagger, number

_AS_IS = "as is"
SIGNS = {SHOWN_BETTER: "✓", EQUIVALENT: "≈", SHOWN_WORSE: "✗"}


def leaderboard_table(evaluation: StoredEvaluation) -> TextTable:
    """One row per calibrator, ordered by validation NLL, with intervals, floor and verdicts."""
    fitted, measured = (count(rows, "row") for rows in evaluation.rows)
    how = (
        f"{fitted}, cross-fitted"
        if evaluation.cross_fitted
        else f"fitted on {fitted}, measured on {measured}"
    )
    rows, names, styles = evaluation.leaderboard, [], []
    for _, row in rows.iterrows():
        name = _AS_IS if row["calibrator"] == "identity" else row["calibrator"]
        names.append(f"{name}{dagger(row)}{' ★' if row['winner'] else ''}")
        styles.append("bold" if row["winner"] else "")
    title = [evaluation.name, how, f"ordered by {DECIDING_TITLE}"]
    return TextTable(title, names, _columns(evaluation), styles)


def _columns(evaluation: StoredEvaluation) -> list[TextColumn]:
    """The deciding metric, its value on test rows, then the others; the last is dropped first."""
    rows = evaluation.leaderboard
    metrics = deciding_first(METRICS.names(Shown.HEADLINE))
    decided = [number(value, 4) for value in rows[CHOSEN_BY]]
    columns = [TextColumn(DECIDING_HEAD, decided)]
    for place, metric in enumerate(metrics):
        cells = [
            f"{_with_interval(row, metric)} {_sign(evaluation, row['calibrator'], metric)}"
            for _, row in rows.iterrows()
        ]
        columns.append(TextColumn(f"{METRICS.title(metric)}  ", cells, place))
        if metric == "ece":
            floors = [number(floor) for floor in rows["floor"]]
            columns.append(TextColumn("floor", floors, len(metrics)))
    return columns


def _sign(evaluation: StoredEvaluation, calibrator: str, metric: str) -> str:
    return SIGNS.get(evaluation.verdict(calibrator, metric), " ")


def print_evaluation(evaluation: StoredEvaluation, console: Console) -> None:
    """Print the table, as wide as the console, and the meaning of its signs."""
    shown = leaderboard_table(evaluation)
    console.print(shown, crop=False)
    console.print()
    left = not_shown([shown.left_out(console.width)])
    judged = (
        f"Every row was judged by calibrators fitted without it; {FLATTERED}. "
        if evaluation.cross_fitted
        else ""
    )
    marked = convergence_note(evaluation.leaderboard["converged"])
    console.print(
        f"★ chosen by {DECIDING_HEAD}, the cross-fitted {DECIDING_TITLE}. {judged}✓ better, "
        "≈ equivalent, ✗ worse than as is (paired bootstrap, Holm-corrected, 5 %); no sign: "
        "undecided; –: not measured. [low, high]: 95 % bootstrap interval. floor: the ECE "
        "this row would show by chance if it were calibrated; an ECE near it is as good as it "
        f"gets. {evaluation.bins} bins, {procedure(evaluation)}.{marked} {left}".rstrip(),
        style="dim",
        highlight=False,
        markup=False,
    )
    print_blindness(filter(None, [evaluation.blindness]), console)


def _with_interval(row: pd.Series[Any], metric: str) -> str:
    value = float(row.get(metric, math.nan))
    low, high = (float(row.get(f"{metric}_{end}", math.nan)) for end in ("low", "high"))
    if math.isnan(value):
        return "–"
    if math.isnan(low) or not math.isfinite(value):
        return number(value)
    return f"{value:.4f} [{_bare(low)}, {_bare(high)}]"


def _bare(value: float) -> str:
    return f"{value:.3f}".removeprefix("0") if 0 <= value < 1 else f"{value:.3f}"
