"""The leaderboard as it is printed at the end of a sweep."""

from __future__ import annotations

import math

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from calibration.metrics import METRICS, Shown
from sweeps.analysis import Analysis
from sweeps.analysis.comparisons import by_row
from sweeps.analysis.records import SweepRecords
from sweeps.analysis.results import headline_rows, label
from sweeps.analysis.verdicts import PRIMARY
from sweeps.host.console import print_whole
from sweeps.report.wording import convergence_note, dagger, ensemble_note, p_value
from sweeps.spec import ORACLE


def leaderboard_tables(analysis: Analysis, sweep: SweepRecords) -> list[Table]:
    """One table per dataset: each method as it is and with its best calibrator."""
    tables = []
    metrics = METRICS.names(Shown.HEADLINE)
    table, found = analysis.leaderboard, by_row(analysis.comparisons)
    judged = {
        (line["dataset"], line["row"], line["calibrator"]): _verdict(line)
        for _, line in found[found["metric"] == PRIMARY].iterrows()
    }
    for dataset in sweep.loaded.datasets:
        rows = headline_rows(table, dataset)
        if rows.empty:
            continue
        seeds = int(rows["seeds"].max())
        # A long title is wrapped to the table's width: keep it short and left-aligned.
        shown = Table(
            title=f"{dataset} · mean ± sd over {seeds} seeds · ordered by validation NLL",
            title_justify="left",
            title_style="bold",
            box=SIMPLE_HEAD,
            pad_edge=False,
        )
        shown.add_column("", min_width=18)
        for metric in metrics:
            shown.add_column(METRICS.title(metric), justify="right", no_wrap=True)
            if metric == "ece":
                shown.add_column("floor", justify="right", no_wrap=True)
        shown.add_column("sec", justify="right", no_wrap=True)
        shown.add_column(f"{METRICS.title(PRIMARY)} vs {analysis.baseline.label}")
        for _, row in rows.iterrows():
            name = label(row["row"], row["calibrator"])
            if row["seeds"] < seeds:
                name += f" ({row['seeds']} seeds)"
            cells = []
            for metric in metrics:
                cells.append(spread(row.get(metric, math.nan), row.get(f"{metric}_sd", math.nan)))
                cells += [number(row["floor"])] if metric == "ece" else []
            cost = "" if row["row"] == ORACLE else number(row["train_seconds"], 2)
            style = "bold" if row["winner"] else ("dim" if row["row"] == ORACLE else "")
            star = dagger(row) + (" ★" if row["winner"] else "")
            verdict = judged.get((row["dataset"], row["row"], row["calibrator"]), "")
            shown.add_row(f"{name}{star}", *cells, cost, verdict, style=style)
        for _, row in _of(analysis.ensembles, dataset).iterrows():
            cells = []
            for metric in metrics:
                cells.append(spread(row.get(metric, math.nan), row.get(f"{metric}_se", math.nan)))
                cells += [number(row["floor"])] if metric == "ece" else []
            name = label(row["row"], row["calibrator"])
            shown.add_row(name, *cells, number(row["train_seconds"], 2), "", style="dim")
        tables.append(shown)
    return tables


def _of(ensembles: pd.DataFrame, dataset: str) -> pd.DataFrame:
    """A dataset's ensembles as they are and with their row's chosen calibrator."""
    if ensembles.empty:
        return ensembles
    return ensembles[(ensembles["dataset"] == dataset) & ensembles["headline"]]


def _verdict(compared: pd.Series) -> str:
    p = p_value(float(compared["p_holm"]))
    return f"{compared['verdict']} ({p})" if p else str(compared["verdict"])


def print_leaderboard(analysis: Analysis, sweep: SweepRecords, console: Console) -> None:
    """Print every dataset's table and what its signs mean."""
    for shown in leaderboard_tables(analysis, sweep):
        print_whole(console, shown)
        console.print()
    table = analysis.leaderboard
    shares = [
        share for d in sweep.loaded.datasets for share in headline_rows(table, d)["converged"]
    ]
    console.print(
        "★ the simplest within noise of the best validation NLL. floor: the ECE this row would "
        "show by chance if it were calibrated; an ECE near it is as good as it gets. "
        f"{sweep.spec.bins} bins. sec: training time. vs: {analysis.baseline.about}, paired over "
        "seeds, Holm-corrected "
        f"for the rows and metrics of a headline.{convergence_note(shares)}"
        f"{ensemble_note(analysis.ensembles)}",
        style="dim",
        highlight=False,
        markup=False,  # a row may be called [red]
    )


def spread(mean: float, deviation: float) -> str:
    """A mean and its spread, e.g. ``0.024 ±.006``; one seed has no spread."""
    if math.isnan(mean):
        return "–"
    if math.isnan(deviation):
        return number(mean)
    return f"{mean:.3f} ±{f'{deviation:.3f}'.lstrip('0')}"


def number(value: float, digits: int = 3) -> str:
    """A number, or a dash where there is none."""
    return "–" if math.isnan(value) else f"{value:.{digits}f}"
