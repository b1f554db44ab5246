"""Write the report of a sweep into its directory."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pandas as pd

from calibration import plots
from sweeps.analysis import Analysis, analyse
from sweeps.analysis.ensembles import with_ensembles
from sweeps.analysis.records import SweepRecords
from sweeps.analysis.results import pareto
from sweeps.analysis.row_evidence import About
from sweeps.host.console import Terminal, width_of
from sweeps.report import exports
from sweeps.report.attempts import Attempts
from sweeps.report.blindness import blindness
from sweeps.report.csv_table import csv
from sweeps.report.escaping import markdown_text
from sweeps.report.figures import Drawing, figures
from sweeps.report.gather import gather
from sweeps.report.headline import across, headlines, looks, outdated, recommended
from sweeps.report.images import Picture
from sweeps.report.page import page
from sweeps.report.paper_table import markdown, paper_table
from sweeps.report.terminal import leaderboard_tables, print_leaderboard
from sweeps.report.wording import count
from sweeps.store import Store

Write = Callable[[str, bytes], None]
_Files = Iterator[tuple[str, Callable[[], bytes]]]
"""File names, and the functions that make their content."""


@dataclass(frozen=True)
class WrittenReport:
    """The analysis behind the report, a short Markdown summary, and the published table's rows.

    ``failures`` names the files and sections that could not be made, each with the reason.
    """

    analysis: Analysis
    summary: str
    table: pd.DataFrame | None
    failures: dict[str, str] = field(default_factory=dict)


def write_report(
    sweep: SweepRecords,
    store: Store,
    baseline: str | None = None,
    write: Write | None = None,
    about: About = "new_data",
) -> WrittenReport:
    """Write the report of a sweep into its directory in the store, or through ``write``.

    report.html; recommendation.json; results (tidy), leaderboard, comparisons and costs as CSV,
    results as Parquet too; the leaderboard as Markdown, LaTeX and SVG; figures/; and if they
    apply, importance.csv, pareto.csv, table.csv and table.md. A part that cannot be made is
    logged, and named in the page and in ``failures``; all others are written. ``about`` is the
    population of the verdicts, as in ``analyse``. Raises ``UserError`` if ``baseline`` is not a
    row of the sweep, ``StoreError`` if nothing can be written.
    """

    def file(name: str, content: bytes) -> None:
        store.write_file(sweep.spec.name, name, content)

    write = write or file
    analysis = analyse(sweep, baseline, about)
    attempts = Attempts()
    gathered = gather(sweep, analysis.results, analysis.leaderboard, attempts)
    for name, make in _tables(sweep, analysis):
        attempts.part(name, partial(_write, write, name, make), None)
    lines = _write_paper_table(sweep, analysis, write, attempts)
    pictures = []
    for drawing in figures(sweep, store, gathered):
        name = f"figures/{drawing.name}.png"
        picture = attempts.part(name, partial(_draw, drawing, name, write), None)
        pictures += [] if picture is None else [picture]
    summary_text = attempts.part(
        "the summary", partial(summary, sweep, analysis), f"# {sweep.spec.name}\n"
    )

    def whole_page() -> bytes:
        return page(sweep, analysis, gathered, pictures, lines, attempts).encode()

    attempts.part("report.html", partial(_write, write, "report.html", whole_page), None)
    if attempts.failures:
        missing = "; ".join(f"{what} ({why})" for what, why in attempts.failures.items())
        summary_text += f"\n{markdown_text(f'Could not be made: {missing}')}\n"
    return WrittenReport(analysis, summary_text, lines, attempts.failures)


def summary(sweep: SweepRecords, analysis: Analysis) -> str:
    """The outcome of the sweep as a Markdown page."""
    trials = f"{count(sweep.done, 'trial')}, {sweep.failed} failed."
    if analysis.leaderboard.empty:
        return f"# {sweep.spec.name}\n\n{trials} No confirmed trial.\n"
    sentences = [*recommended(analysis), trials]
    sentences += [*map(str, headlines(sweep, analysis).values()), across(analysis)]
    sentences += [*blindness(sweep, analysis).values()]
    sentences += [outdated(sweep, analysis), looks(sweep)]
    return f"# {sweep.spec.name}\n\n{exports.markdown(analysis, [s for s in sentences if s])}"


def parquet(table: pd.DataFrame) -> bytes:
    """The table with its types, for other programs."""
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False)
    return buffer.getvalue()


def _tables(sweep: SweepRecords, analysis: Analysis) -> _Files:
    yield "results.csv", partial(csv, analysis.results)
    yield "results.parquet", partial(parquet, analysis.results)
    yield "leaderboard.csv", lambda: csv(with_ensembles(analysis.leaderboard, analysis.ensembles))
    yield "comparisons.csv", partial(csv, analysis.comparisons)
    yield "costs.csv", partial(csv, analysis.costs)
    yield "recommendation.json", lambda: analysis.recommendation.to_json().encode()
    if not analysis.importance.empty:
        yield "importance.csv", partial(csv, analysis.importance)
    if len(sweep.spec.search.objective) > 1:
        yield "pareto.csv", lambda: csv(pareto(sweep))
    if analysis.leaderboard.empty:
        return
    yield "leaderboard.md", lambda: exports.markdown(analysis).encode()
    yield "leaderboard.tex", lambda: exports.latex(analysis).encode()
    yield "leaderboard.svg", lambda: _terminal_picture(analysis, sweep).encode()


def _write_paper_table(
    sweep: SweepRecords, analysis: Analysis, write: Write, attempts: Attempts
) -> pd.DataFrame | None:
    if sweep.spec.table is None or analysis.leaderboard.empty:
        return None
    lines = attempts.part(
        "the published table", partial(paper_table, analysis.results, sweep), None
    )
    if lines is None:
        return None
    attempts.part("table.csv", lambda: write("table.csv", csv(lines)), None)
    attempts.part("table.md", lambda: write("table.md", markdown(lines, sweep).encode()), None)
    return lines


def _write(write: Write, name: str, make: Callable[[], bytes]) -> None:
    write(name, make())


def _draw(drawing: Drawing, name: str, write: Write) -> Picture | None:
    figure = drawing.draw()
    if figure is None:
        return None
    png = plots.png(figure, dpi=110)
    write(name, png)
    return Picture(drawing.name, drawing.dataset, png, drawing.title, drawing.about)


def _terminal_picture(analysis: Analysis, sweep: SweepRecords) -> str:
    width = max(map(width_of, leaderboard_tables(analysis, sweep)))
    console = Terminal(record=True, width=width, file=io.StringIO())
    print_leaderboard(analysis, sweep, console)
    svg = console.export_svg(title=f"calsweep · {sweep.spec.name}")
    # rich loads its font from the network; any fixed-width font shows the same.
    return re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
