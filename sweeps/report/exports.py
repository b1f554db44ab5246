"""The leaderboard's headline rows as Markdown and as LaTeX."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import pandas as pd

from calibration.metrics import METRICS, Shown
from sweeps.analysis import Analysis
from sweeps.analysis.comparisons import by_row
from sweeps.analysis.results import headline_rows, label
from sweeps.analysis.verdicts import PRIMARY
from sweeps.report.escaping import latex_text, markdown_text
from sweeps.report.wording import convergence_note, count, dagger, interval, number, p_value
from sweeps.spec import ORACLE


def markdown(analysis: Analysis, sentences: Sequence[str] = ()) -> str:
    """A Markdown table for each dataset, after introductory sentences."""
    if analysis.leaderboard.empty:
        return "No confirmed trial.\n"
    pieces = [f"{markdown_text(sentence)}\n" for sentence in sentences]
    for dataset, heads, rows in _tables(analysis):
        texts = [[markdown_text(cell) for cell in row] for row in (heads, *rows)]
        head, *body = (f"| {' | '.join(row)} |" for row in texts)
        rule = "|---" + "|---:" * (len(heads) - 1) + "|"
        pieces.append("\n".join([f"**{markdown_text(dataset)}**\n", head, rule, *body, ""]))
    pieces.append(f"{markdown_text(_notes(analysis))}\n")
    return "\n".join(pieces)


def latex(analysis: Analysis) -> str:
    """A LaTeX table for each dataset; the document needs the package booktabs."""
    if analysis.leaderboard.empty:
        return "% No confirmed trial.\n"
    pieces = [r"% \usepackage{booktabs}"]
    for dataset, heads, rows in _tables(analysis):
        body = [f"{' & '.join(latex_text(cell) for cell in row)} \\\\" for row in (heads, *rows)]
        pieces += [
            r"\begin{table}",
            r"\centering",
            f"\\caption{{{latex_text(dataset)}. {latex_text(_notes(analysis))}}}",
            f"\\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}",
            r"\toprule",
            body[0],
            r"\midrule",
            *body[1:],
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    return "\n".join(pieces)


def _tables(analysis: Analysis) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Every dataset's headings and headline rows as plain text."""
    table = analysis.leaderboard
    heads = ["", *map(METRICS.title, METRICS.names(Shown.LEADERBOARD)), "floor"]
    heads += [f"{METRICS.title(PRIMARY)} vs {analysis.baseline.label}", "seeds", "train s"]
    for dataset in table["dataset"].unique():
        rows = headline_rows(table, dataset)
        yield str(dataset), heads, [_cells(row, analysis) for _, row in rows.iterrows()]


def _cells(row: pd.Series, analysis: Analysis) -> list[str]:
    name = label(row["row"], row["calibrator"]) + dagger(row) + (" ★" if row["winner"] else "")
    shown = METRICS.names(Shown.LEADERBOARD)
    cells = [f"{number(row.get(m, math.nan))} {interval(row, m)}".strip() for m in shown]
    took = "" if row["row"] == ORACLE else number(row["train_seconds"], 2)
    verdict = _verdict(row, by_row(analysis.comparisons))
    return [name, *cells, number(row["floor"]), verdict, str(int(row["seeds"])), took]


def _verdict(row: pd.Series, comparisons: pd.DataFrame) -> str:
    mine = comparisons["dataset"] == row["dataset"]
    for column in ("row", "calibrator"):
        mine &= comparisons[column] == row[column]
    found = comparisons[mine & (comparisons["metric"] == PRIMARY)]
    if found.empty:
        return ""
    line = found.iloc[0]
    p = "" if math.isnan(line["p_holm"]) else f" ({p_value(line['p_holm'])})"
    return f"{line['verdict']}{p}"


def _notes(analysis: Analysis) -> str:
    table = analysis.leaderboard
    seeds = int(table["seeds"].max()) if len(table) else 0
    over = f"over {count(seeds, 'seed')}" if seeds > 1 else "over test points (bootstrap)"
    if seeds > 1 and (table["seeds"] == 1).any():
        over += " (for a row with one seed: by bootstrap over test points)"
    shown = [
        share for d in table["dataset"].unique() for share in headline_rows(table, d)["converged"]
    ]
    return (
        f"Means on test data with 95 % intervals {over}; floor: the ECE of a calibrated model by "
        f"chance; ★ chosen on validation data. Baseline: "
        f"{analysis.baseline.about}; p-values corrected (Holm).{convergence_note(shown)}"
    )
