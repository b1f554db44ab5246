"""The leaderboard as it is printed at the end of a sweep."""

from __future__ import annotations

import math

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sweeps.plan import Plan
from sweeps.report.results import headline_rows, label
from sweeps.spec import ORACLE

COLUMNS = {"ece": "ECE", "floor": "floor", "nll": "NLL", "error": "error"}


def leaderboard_tables(table: pd.DataFrame, plan: Plan) -> list[Table]:
    """One table per dataset: each method as it is and with its best map."""
    tables = []
    for dataset in plan.loaded.datasets:
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
        for heading in (*COLUMNS.values(), "sec"):
            shown.add_column(heading, justify="right", no_wrap=True)
        for _, row in rows.iterrows():
            name = label(row["method"], row["post_hoc"])
            if row["seeds"] < seeds:
                name += f" ({row['seeds']} seeds)"
            cells = [spread(row[m], row[f"{m}_sd"]) for m in COLUMNS]
            cells[1] = number(row["floor"])
            cost = "" if row["method"] == ORACLE else number(row["train_seconds"], 2)
            style = "bold" if row["winner"] else ("dim" if row["method"] == ORACLE else "")
            star = " ★" if row["winner"] else ""
            shown.add_row(Text(f"{name}{star}"), *cells, cost, style=style)
        tables.append(shown)
    return tables


def print_leaderboard(table: pd.DataFrame, plan: Plan, console: Console) -> None:
    """Print every dataset's table and what its signs mean."""
    for shown in leaderboard_tables(table, plan):
        console.print(shown)
        console.print()
    console.print(
        "★ best cross-fitted validation NLL. floor: the ECE this row would show by chance if it "
        f"were calibrated; an ECE near it is as good as it gets. {plan.spec.bins} bins. "
        "sec: training time.",
        style="dim",
        highlight=False,
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
