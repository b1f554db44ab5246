"""A published table reproduced: our values beside the published ones, row by row.

A calibration error is marked ≈ if it cannot be distinguished from that of a perfectly calibrated
model: ours if the mean over seeds lies within the chance range of the mean of that many test
draws (one-sided, 95 %), or of one draw if all seeds share a test set; a published one if it lies
within the chance range of one draw. Rows that the publication quotes follow below, marked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as TerminalTable

from calibration.metrics import METRICS
from calibration.text import count
from sweeps.analysis.records import SweepRecords
from sweeps.host.console import print_whole
from sweeps.report.chance import like_perfect
from sweeps.report.escaping import markdown_text
from sweeps.report.wording import convergence_note, dagger
from sweeps.spec import ORACLE
from sweeps.spec.schema import PublishedTable


def paper_table(tidy: pd.DataFrame, sweep: SweepRecords) -> pd.DataFrame:
    """One line per (dataset, row, metric): our mean and spread, and the published value.

    A quoted row has only the latter.
    """
    table = sweep.spec.table
    assert table is not None, "only specs with a table have one"
    lines = []
    for dataset in sweep.loaded.datasets:
        chance = _largest_by_chance(tidy, dataset)
        own_draws = sweep.loaded.datasets[dataset].independent_draws
        written = table.published.get(dataset, {}) | table.quoted.get(dataset, {})
        for name in [*table.rows, *table.quoted.get(dataset, {})]:
            ours = table.rows.get(name)
            seeds = tidy.head(0) if ours is None else _rows_of(tidy, dataset, ours)
            for metric in table.metrics:
                values = seeds.get(_column(metric, seeds), pd.Series(dtype=float))
                published = written.get(name, {}).get(metric, math.nan)
                lines.append(
                    {
                        "dataset": dataset,
                        "row": name,
                        "metric": metric,
                        "mean": values.mean(),
                        "sd": values.std(ddof=1),
                        "seeds": int(values.count()),
                        "by_seed": " ".join(f"{value:.5f}" for value in values.dropna()),
                        "chosen": "" if ours is None else _chosen(sweep, dataset, ours),
                        "converged": bool(seeds["converged"].all()) if len(seeds) else True,
                        "published": published,
                        "like_perfect": metric == "ece" and like_perfect(seeds, own_draws),
                        "published_like_perfect": metric == "ece"
                        and published <= (100 if table.percent else 1) * chance,
                    }
                )
    return pd.DataFrame(lines)


def _heading(metric: str) -> str:
    if metric == "floor":
        return "ECE's floor"
    title = METRICS.title(metric.removeprefix("large_"))
    heading = title[0].upper() + title[1:]
    return f"{heading}, large test" if metric.startswith("large_") else heading


def _is_share(metric: str) -> bool:
    """Whether the metric can be written in per cent; the floor is an ECE."""
    name = metric.removeprefix("large_")
    return name not in METRICS or METRICS[name].unit == "share"


def _chosen(sweep: SweepRecords, dataset: str, ours: str) -> str:
    """A row's searched hyperparameters as found: ``inner_steps=5 outer_lr=2.0``."""
    cell = sweep.cells.get((dataset, ours.partition(" + ")[0]))
    chosen = None if cell is None else cell.chosen
    if cell is None or chosen is None:
        return ""
    return " ".join(f"{name}={chosen[name]}" for name in sweep.spec.space(cell.row).searched)


def _rows_of(tidy: pd.DataFrame, dataset: str, ours: str) -> pd.DataFrame:
    row, _, chosen = ours.partition(" + ")
    method = ORACLE if row == "oracle" else row
    if tidy.empty:
        return tidy
    return tidy[
        (tidy["dataset"] == dataset)
        & (tidy["row"] == method)
        & (tidy["calibrator"] == (chosen or "identity"))
    ]


def _column(metric: str, seeds: pd.DataFrame) -> str:
    """The column of a metric; of the larger test draw, if any, where the posterior is known."""
    large = f"large_{metric}"
    known = metric in METRICS and METRICS[metric].needs == "posterior"
    return large if known and large in seeds else metric


def _largest_by_chance(tidy: pd.DataFrame, dataset: str) -> float:
    """The 95 % quantile of the true posterior's ECE over draws, if the posterior is known."""
    oracle = _rows_of(tidy, dataset, "oracle")
    if oracle.empty:
        return -math.inf
    return float(oracle["floor_q95"].mean())


def print_paper_table(lines: pd.DataFrame, sweep: SweepRecords, console: Console) -> None:
    """Print one table per dataset, in the order of the published one."""
    table = sweep.spec.table
    assert table is not None, "only specs with a table have one"
    for dataset in sweep.loaded.datasets:
        print_whole(console, _terminal_table(lines[lines["dataset"] == dataset], table, dataset))
    console.print(notes(sweep, lines), style="dim", highlight=False, markup=False)


def notes(sweep: SweepRecords, lines: pd.DataFrame) -> str:
    """The meaning of the table's numbers and signs."""
    table = sweep.spec.table
    assert table is not None, "only specs with a table have one"
    remarks = [f"mean ± standard deviation over {count(sweep.spec.confirm_seeds, 'seed')}"]
    if table.percent:
        remarks[0] += ", shares in per cent"
    if table.published or table.quoted:
        remarks.append("[…] as published")
    if table.quoted:
        remarks.append("quoted: not measured in that publication, but taken from another one")
    if lines["like_perfect"].any() or lines["published_like_perfect"].any():
        remarks.append("≈ cannot be distinguished from perfect calibration on this many test rows")
    return "; ".join(remarks) + "." + convergence_note(lines["converged"])


def table_rows(lines: pd.DataFrame, table: PublishedTable) -> list[list[str]]:
    """One dataset's table as text: a row of headings, then the rows with their names."""
    heads = ["", *map(_heading, table.metrics)]
    rows = [[_row_name(lines, row), *_cells(lines, row, table)] for row in table.rows]
    quoted = [row for row in lines["row"].unique() if row not in table.rows]
    return [heads, *rows, *([f"{row} (quoted)", *_cells(lines, row, table)] for row in quoted)]


def _terminal_table(lines: pd.DataFrame, table: PublishedTable, dataset: str) -> TerminalTable:
    shown = TerminalTable(
        title=f"{table.title} · {dataset}",
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    heads, *rows = table_rows(lines, table)
    for heading in heads:
        shown.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for row in rows:
        shown.add_row(*row)
    return shown


def _row_name(lines: pd.DataFrame, row: str) -> str:
    """The row's name, its mark, and how many seeds it has if others have more."""
    own = lines[lines["row"] == row]
    seeds, name = int(own["seeds"].max()), row + dagger({"converged": own["converged"].all()})
    return name if seeds == lines["seeds"].max() else f"{name} ({count(seeds, 'seed')})"


def _cells(lines: pd.DataFrame, row: str, table: PublishedTable) -> list[str]:
    return [_cell(line, table) for _, line in lines[lines["row"] == row].iterrows()]


def _cell(line: pd.Series, table: PublishedTable) -> str:
    scale = 100 if table.percent and _is_share(line["metric"]) else 1
    digits = 2 if scale == 100 else 3
    if line["row"] not in table.rows:
        return "–" if np.isnan(line["published"]) else f"[{line['published']:.{digits}f}]"
    text = "–" if math.isnan(line["mean"]) else f"{scale * line['mean']:.{digits}f}"
    if not math.isnan(line["sd"]):
        text += f" ±{scale * line['sd']:.{digits}f}".replace("±0.", "±.")
    text += "≈" if line["like_perfect"] else ""
    if not np.isnan(line["published"]):
        mark = "≈" if line["published_like_perfect"] else ""
        text += f" [{line['published']:.{digits}f}{mark}]"
    return text


def markdown(lines: pd.DataFrame, sweep: SweepRecords) -> str:
    """The table as Markdown, for a README."""
    table = sweep.spec.table
    assert table is not None, "only specs with a table have one"
    datasets = list(sweep.loaded.datasets)
    pieces = [f"# {markdown_text(table.title)}", ""]
    if len(datasets) > 1:
        for metric in table.metrics:
            pieces += [*across(lines, table, metric), ""]
    for dataset in datasets:
        heads, *rows = table_rows(lines[lines["dataset"] == dataset], table)
        pieces += [_line([markdown_text(dataset), *heads[1:]]), "|---" * len(heads) + "|"]
        pieces += [_line([markdown_text(name), *cells]) for name, *cells in rows]
        pieces.append("")
    note = convergence_note(lines["converged"]).strip()
    return "\n".join([*pieces, note, ""] if note else pieces)


def across(lines: pd.DataFrame, table: PublishedTable, metric: str) -> list[str]:
    """One metric in Markdown, with a column for each dataset, as tables are often published."""
    here = lines[lines["metric"] == metric]
    datasets = list(here["dataset"].unique())
    pieces = [
        _line([_heading(metric), *map(markdown_text, datasets)]),
        "|---" * (len(datasets) + 1) + "|",
    ]
    for row in table.rows:
        pieces.append(_line([markdown_text(row), *_cells(here, row, table)]))
    return pieces


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
