"""The leaderboard of stored predictions in the terminal."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from calibration.metrics import METRICS, Shown
from sweeps.analysis.verdicts import EQUIVALENT, SHOWN_BETTER, SHOWN_WORSE
from sweeps.host.console import print_whole
from sweeps.posthoc.evaluation import StoredEvaluation
from sweeps.posthoc.wording import FLATTERED, procedure
from sweeps.report.wording import convergence_note, dagger, number

_AS_IS = "as is"
SIGNS = {SHOWN_BETTER: "✓", EQUIVALENT: "≈", SHOWN_WORSE: "✗"}


def leaderboard_table(evaluation: StoredEvaluation) -> Table:
    """One row per calibrator, ordered by validation NLL, with intervals, floor and verdicts."""
    fitted, measured = evaluation.rows
    how = (
        f"{fitted} rows, cross-fitted"
        if evaluation.cross_fitted
        else (f"fitted on {fitted} rows, measured on {measured}")
    )
    shown = Table(
        title=f"{evaluation.name} · {how} · ordered by validation NLL",
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    shown.add_column("", min_width=18, no_wrap=True)
    metrics = METRICS.names(Shown.HEADLINE)
    for metric in metrics:
        shown.add_column(METRICS.title(metric), justify="right", no_wrap=True)
        if metric == "ece":
            shown.add_column("floor", justify="right", no_wrap=True)
    for _, row in evaluation.leaderboard.iterrows():
        name = row["calibrator"]
        cells = []
        for metric in metrics:
            cells.append(
                f"{_with_interval(row, metric)} {SIGNS.get(evaluation.verdict(name, metric), ' ')}"
            )
            cells += [number(row["floor"])] if metric == "ece" else []
        star = " ★" if row["winner"] else ""
        label = f"{_AS_IS if name == 'identity' else name}{dagger(row)}{star}"
        style = "bold" if row["winner"] else ""
        shown.add_row(label, *cells, style=style)
    return shown


def print_evaluation(evaluation: StoredEvaluation, console: Console) -> None:
    """Print the table and what its signs mean."""
    print_whole(console, leaderboard_table(evaluation))
    judged = (
        f"Every row was judged by calibrators fitted without it; {FLATTERED}. "
        if evaluation.cross_fitted
        else ""
    )
    marked = convergence_note(evaluation.leaderboard["converged"])
    console.print(
        f"★ best cross-fitted validation NLL. {judged}✓ better, ≈ equivalent, ✗ worse than "
        "as is (paired bootstrap, Holm-corrected, 5 %); no sign: undecided; –: not measured. "
        "[low, high]: 95 % bootstrap interval. floor: the ECE this row would show by chance if it "
        "were calibrated; an ECE near it is as good as it gets. "
        f"{evaluation.bins} bins, {procedure(evaluation)}.{marked}",
        style="dim",
        highlight=False,
        markup=False,
    )


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
