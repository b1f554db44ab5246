"""Everything a finished sweep writes into its directory."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console

from sweeps.plan import Plan
from sweeps.report.figures import figures
from sweeps.report.page import page
from sweeps.report.paper_table import markdown, paper_table
from sweeps.report.results import headline_rows, label, leaderboard, pareto, results
from sweeps.report.terminal import print_leaderboard, spread
from sweeps.store import Store


@dataclass(frozen=True)
class WrittenReport:
    """The leaderboard, a short Markdown summary of it, and the published table's rows."""

    leaderboard: pd.DataFrame
    summary: str
    table: pd.DataFrame | None = None


def write_report(plan: Plan, store: Store) -> WrittenReport:
    """Write results.csv, leaderboard.csv and .svg, figures/, report.html; table.csv and .md."""

    def write(name: str, content: bytes) -> None:
        store.write_file(plan.spec.name, name, content)

    tidy = results(plan, store)
    table = leaderboard(tidy)
    write("results.csv", _csv(tidy))
    write("leaderboard.csv", _csv(table))
    if len(plan.spec.search.objective) > 1:
        write("pareto.csv", _csv(pareto(plan)))
    if table.empty:
        write("report.html", page(plan, table, {}).encode())
        return WrittenReport(table, "No confirmed trial.")
    write("leaderboard.svg", _picture(table, plan).encode())
    drawn = figures(plan, store, table)
    images = {name: _png(figure) for name, figure in drawn.items()}
    for name, image in images.items():
        write(f"figures/{name}.png", image)
    lines = _write_paper_table(plan, tidy, write)
    write("report.html", page(plan, table, images, lines).encode())
    return WrittenReport(table, _summary(plan, table), lines)


def _write_paper_table(
    plan: Plan, tidy: pd.DataFrame, write: Callable[[str, bytes], None]
) -> pd.DataFrame | None:
    if plan.spec.table is None:
        return None
    lines = paper_table(tidy, plan)
    write("table.csv", _csv(lines))
    write("table.md", markdown(lines, plan).encode())
    return lines


def _csv(table: pd.DataFrame) -> bytes:
    """Seven digits: more than any of these numbers is known to, and half the size."""
    return table.to_csv(index=False, float_format="%.7g").encode()


def _picture(table: pd.DataFrame, plan: Plan) -> str:
    console = Console(record=True, width=104, file=io.StringIO())
    print_leaderboard(table, plan, console)
    svg = console.export_svg(title=f"calsweep · {plan.spec.name}")
    # rich loads its font from the network; a file of ours shows the same with any fixed font.
    return re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def _summary(plan: Plan, table: pd.DataFrame) -> str:
    lines = [f"# {plan.spec.name}", "", f"{plan.done} trials, {plan.failed} failed.", ""]
    for dataset in plan.loaded.datasets:
        rows = headline_rows(table, dataset)
        lines += [f"**{dataset}**", "", "| | ECE | NLL | error |", "|---|---|---|---|"]
        for _, row in rows.iterrows():
            cells = " | ".join(spread(row[m], row[f"{m}_sd"]) for m in ("ece", "nll", "error"))
            star = " ★" if row["winner"] else ""
            lines.append(f"| {label(row['method'], row['post_hoc'])}{star} | {cells} |")
        lines.append("")
    return "\n".join(lines)
