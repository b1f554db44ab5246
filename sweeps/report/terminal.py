"""The leaderboard printed at the end of a sweep."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import pandas as pd
from rich.console import Console

from calibration.metrics import METRICS, Shown
from sweeps.analysis import Analysis
from sweeps.analysis.comparisons import by_row
from sweeps.analysis.records import SweepRecords
from sweeps.analysis.results import headline_rows, label
from sweeps.analysis.selection import CHOSEN_BY
from sweeps.analysis.verdicts import PRIMARY
from sweeps.host.text_table import ALWAYS, TextColumn, TextTable
from sweeps.report.blindness import blindness
from sweeps.report.columns import DECIDING_HEAD, DECIDING_TITLE, deciding_first
from sweeps.report.wording import (
    convergence_note,
    count,
    dagger,
    ensemble_note,
    number,
    p_value,
)
from sweeps.spec import ORACLE
from sweeps.spec.data_notes import data_notes


def leaderboard_tables(analysis: Analysis, sweep: SweepRecords) -> list[TextTable]:
    """One table per dataset: each method uncalibrated and with its best calibrator."""
    tables = []
    for dataset in sweep.loaded.datasets:
        rows = headline_rows(analysis.leaderboard, dataset)
        if not rows.empty:
            tables.append(_table(rows, _of(analysis.ensembles, dataset), analysis))
    return tables


def _of(ensembles: pd.DataFrame, dataset: str) -> pd.DataFrame:
    """A dataset's ensembles, uncalibrated and with their row's chosen calibrator."""
    if ensembles.empty:
        return ensembles
    return ensembles[(ensembles["dataset"] == dataset) & ensembles["headline"]]


def _table(rows: pd.DataFrame, ensembles: pd.DataFrame, analysis: Analysis) -> TextTable:
    seeds = int(rows["seeds"].max())
    over = "1 seed" if seeds == 1 else f"mean ± sd over {count(seeds, 'seed')}"
    title = [str(rows["dataset"].iloc[0]), over, f"ordered by {DECIDING_TITLE}"]
    names, styles = [], []
    for _, row in rows.iterrows():
        fewer = f" ({count(int(row['seeds']), 'seed')})" if row["seeds"] < seeds else ""
        star = dagger(row) + (" ★" if row["winner"] else "")
        names.append(f"{label(row['row'], row['calibrator'])}{fewer}{star}")
        styles.append("bold" if row["winner"] else ("dim" if row["row"] == ORACLE else ""))
    for _, row in ensembles.iterrows():
        names.append(label(row["row"], row["calibrator"]))
        styles.append("dim")
    return TextTable(title, names, _columns(rows, ensembles, analysis), styles)


def _columns(rows: pd.DataFrame, ensembles: pd.DataFrame, analysis: Analysis) -> list[TextColumn]:
    """The deciding metric, its value on test data, the other headline metrics, cost, verdict.

    The first three are always shown, and with the ECE its floor if there is any room; of the
    others, those last in the metrics' order are dropped first.
    """
    metrics = deciding_first(METRICS.names(Shown.HEADLINE))
    columns = [TextColumn(DECIDING_HEAD, _spreads(rows, ensembles, CHOSEN_BY))]
    for place, metric in enumerate(metrics):
        rank = max(ALWAYS, place - 1)
        columns.append(TextColumn(METRICS.title(metric), _spreads(rows, ensembles, metric), rank))
        if metric == "ece":
            floors = [number(row["floor"]) for row in _lines(rows, ensembles)]
            columns.append(TextColumn("floor", floors, 1))  # goes last: ECE means little alone
    costs = [
        "" if row["row"] == ORACLE else number(row["train_seconds"], 2)
        for row in _lines(rows, ensembles)
    ]
    columns.append(TextColumn("sec", costs, len(metrics) + 1))
    against = f"{METRICS.title(PRIMARY)} vs {analysis.baseline.label}"
    judged = [*_verdicts(rows, analysis), *([""] * len(ensembles))]
    columns.append(TextColumn(against, judged, len(metrics) + 2, left=True))
    return columns


def _lines(*tables: pd.DataFrame) -> list[pd.Series]:
    return [row for table in tables for _, row in table.iterrows()]


def _spreads(rows: pd.DataFrame, ensembles: pd.DataFrame, column: str) -> list[str]:
    """Means with standard deviations over seeds; for ensembles, jackknife standard errors."""
    return [
        spread(float(row.get(column, math.nan)), float(row.get(f"{column}_{error}", math.nan)))
        for table, error in ((rows, "sd"), (ensembles, "se"))
        for row in _lines(table)
    ]


def _verdicts(rows: pd.DataFrame, analysis: Analysis) -> list[str]:
    compared = by_row(analysis.comparisons)
    judged = {}
    for _, line in compared[compared["metric"] == PRIMARY].iterrows():
        p = p_value(float(line["p_holm"]))
        words = f"{line['verdict']} ({p})" if p else str(line["verdict"])
        judged[line["dataset"], line["row"], line["calibrator"]] = words
    names = zip(rows["dataset"], rows["row"], rows["calibrator"], strict=True)
    return [judged.get(name, "") for name in names]


def print_leaderboard(analysis: Analysis, sweep: SweepRecords, console: Console) -> None:
    """Print every dataset's table, as wide as the console, and the meaning of its signs."""
    tables = leaderboard_tables(analysis, sweep)
    for shown in tables:
        console.print(shown, crop=False)
        console.print()
    left = [shown.left_out(console.width) for shown in tables]
    table = analysis.leaderboard
    shares = [
        share for d in sweep.loaded.datasets for share in headline_rows(table, d)["converged"]
    ]
    meanings = {
        "floor": "floor: the ECE this row would show by chance if it were calibrated; an ECE near "
        f"it is as good as it gets. {count(sweep.spec.bins, 'bin')}.",
        "sec": "sec: training time.",
        "vs": f"vs: {analysis.baseline.about}, paired over seeds, Holm-corrected for the rows and "
        "metrics of a headline.",
    }
    gone = [{"vs" if " vs " in head else head for head in heads} for heads in left]
    explained = [about for name, about in meanings.items() if not all(name in g for g in gone)]
    explained.append(not_shown(left))
    console.print(
        " ".join(
            [
                f"★ the simplest within noise of the best {DECIDING_HEAD}, the cross-fitted "
                f"{DECIDING_TITLE}.",
                *filter(None, explained),
            ]
        )
        + convergence_note(shares)
        + ensemble_note(analysis.ensembles)
        + "".join(
            f"\n{name}: {' '.join(notes)}"
            for name, dataset in sweep.loaded.datasets.items()
            if (notes := data_notes(dataset))
        ),
        style="dim",
        highlight=False,
        markup=False,  # a row may be named [red]
    )
    print_blindness(blindness(sweep, analysis).values(), console)


def print_blindness(sentences: Iterable[str], console: Console) -> None:
    """Print where top-label ECE is blind: there, metrics outside the table decide."""
    for sentence in sentences:
        console.print(sentence, style="yellow", highlight=False, markup=False)


def not_shown(left: Iterable[Sequence[str]]) -> str:
    """The columns that did not fit into some tables; "" if all did."""
    heads = dict.fromkeys(head.strip() for each in left for head in each)
    return f"Not shown for lack of space: {', '.join(heads)}." if heads else ""


def spread(mean: float, deviation: float) -> str:
    """A mean and its spread, e.g. ``0.024 ±.006``; one seed has no spread."""
    if math.isnan(mean):
        return "–"
    if math.isnan(deviation):
        return number(mean)
    return f"{mean:.3f} ±{f'{deviation:.3f}'.lstrip('0')}"
