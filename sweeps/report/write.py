"""Everything a finished sweep writes into its directory."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console

from sweeps.analysis import Analysis, analyse
from sweeps.analysis.results import pareto
from sweeps.plan import Plan
from sweeps.report import exports
from sweeps.report.figures import figures
from sweeps.report.gather import gather
from sweeps.report.headline import across, headlines
from sweeps.report.images import Picture
from sweeps.report.page import page
from sweeps.report.paper_table import markdown, paper_table
from sweeps.report.terminal import leaderboard_tables, print_leaderboard
from sweeps.saying import width_of
from sweeps.store import Store

Write = Callable[[str, bytes], None]


@dataclass(frozen=True)
class WrittenReport:
    """What the report was made from, a short Markdown summary, and the published table's rows."""

    analysis: Analysis
    summary: str
    table: pd.DataFrame | None


def write_report(
    plan: Plan, store: Store, baseline: str | None = None, write: Write | None = None
) -> WrittenReport:
    """Write the report of a sweep into its directory in the store, or wherever ``write`` does.

    report.html; results (tidy), leaderboard, comparisons and costs as CSV, results as Parquet
    too; the leaderboard as Markdown, LaTeX and SVG; figures/; and where there is such a thing,
    importance.csv, pareto.csv, table.csv and table.md. Raises ``SpecError`` if ``baseline`` is
    no row of the sweep.
    """

    def file(name: str, content: bytes) -> None:
        store.write_file(plan.spec.name, name, content)

    write = write or file
    analysis = analyse(plan, store, baseline)
    table = analysis.leaderboard
    gathered = gather(plan, store, analysis.results, table)
    _write_tables(plan, analysis, write)
    lines = None if table.empty else _write_paper_table(plan, analysis.results, write)
    pictures = []
    for drawn in figures(plan, store, gathered):
        png = _png(drawn.figure)
        write(f"figures/{drawn.name}.png", png)
        pictures.append(Picture(drawn.name, drawn.dataset, png, drawn.title, drawn.about))
    write("report.html", page(plan, analysis, gathered, pictures, lines).encode())
    return WrittenReport(analysis, summary(plan, analysis), lines)


def summary(plan: Plan, analysis: Analysis) -> str:
    """What came of the sweep as a page of Markdown."""
    said = [f"{plan.done} trials, {plan.failed} failed."]
    if analysis.leaderboard.empty:
        return f"# {plan.spec.name}\n\n{said[0]} No confirmed trial.\n"
    said += [*map(str, headlines(plan, analysis).values()), across(analysis)]
    return f"# {plan.spec.name}\n\n{exports.markdown(analysis, [s for s in said if s])}"


def csv(table: pd.DataFrame) -> bytes:
    """Seven digits: more than any of these numbers is known to, and half the size."""
    return table.to_csv(index=False, float_format="%.7g").encode()


def parquet(table: pd.DataFrame) -> bytes:
    """The same with its types, for other programs."""
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False)
    return buffer.getvalue()


def _write_tables(plan: Plan, analysis: Analysis, write: Write) -> None:
    write("results.csv", csv(analysis.results))
    write("results.parquet", parquet(analysis.results))
    write("leaderboard.csv", csv(analysis.leaderboard))
    write("comparisons.csv", csv(analysis.comparisons))
    write("costs.csv", csv(analysis.costs))
    if not analysis.importance.empty:
        write("importance.csv", csv(analysis.importance))
    if len(plan.spec.search.objective) > 1:
        write("pareto.csv", csv(pareto(plan)))
    if analysis.leaderboard.empty:
        return
    write("leaderboard.md", exports.markdown(analysis).encode())
    write("leaderboard.tex", exports.latex(analysis).encode())
    write("leaderboard.svg", _terminal_picture(analysis, plan).encode())


def _write_paper_table(plan: Plan, tidy: pd.DataFrame, write: Write) -> pd.DataFrame | None:
    if plan.spec.table is None:
        return None
    lines = paper_table(tidy, plan)
    write("table.csv", csv(lines))
    write("table.md", markdown(lines, plan).encode())
    return lines


def _terminal_picture(analysis: Analysis, plan: Plan) -> str:
    width = max(map(width_of, leaderboard_tables(analysis, plan)))
    console = Console(record=True, width=width, file=io.StringIO())
    print_leaderboard(analysis, plan, console)
    svg = console.export_svg(title=f"calsweep · {plan.spec.name}")
    # rich loads its font from the network; a file of ours shows the same with any fixed font.
    return re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()
