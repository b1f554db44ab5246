"""A night's report as one HTML file that needs nothing from the network."""

from __future__ import annotations

import math
from collections.abc import Callable
from urllib.parse import quote

import pandas as pd
from markupsafe import Markup

from sweeps.nightly.archive.nights import RUNS, Day
from sweeps.nightly.archive.results import CELL, judged
from sweeps.nightly.judge.rules import (
    ALL,
    BETTER,
    BUSY_MACHINE,
    COST,
    DRIFTING,
    IDENTICAL,
    UNCHANGED,
    WORSE,
)
from sweeps.nightly.judge.verdict import Verdict
from sweeps.nightly.judge.wording import cell_name
from sweeps.nightly.report.charts import ChartData, cells_of, history_chart, title
from sweeps.nightly.report.markdown import HEADLINES, changed_rows, cost_words
from sweeps.report.attempts import Attempts
from sweeps.report.document import PageBudget, PagePart, document
from sweeps.report.table import Head, SortableTable, TableCell, TableRow
from sweeps.report.templates import NOTHING, macro, rendered
from sweeps.report.wording import convergence_note, dagger, number, p_value, seconds

_MOST_DAYS = 42
MOST_CHANGED = 8
"""Most charts of changed cells, which come first."""
UNREMARKABLE = (IDENTICAL, UNCHANGED, BUSY_MACHINE)


def night_page(verdict: Verdict, shown: ChartData) -> str:
    """The whole page: the verdict, the cells worst first, their history, the changed identity.

    A chart or table that cannot be made is logged and named; the others are still shown.
    """
    room, attempts = PageBudget(), Attempts()

    def part(name: str, make: Callable[[], Markup]) -> Markup:
        return attempts.part(f"the section {name!r} of the night's page", make, NOTHING)

    top = room.take(_opening(verdict))
    changed = part("Since the baseline", lambda: room.take(_changed(verdict)))
    ending = part("Sweeps", lambda: room.take(_sweeps(verdict)))
    table = part("Cells", lambda: room.take(_cells(verdict)))
    moved = part("What moved", lambda: _moved(room, verdict, shown))
    history = part("History", lambda: _history(room, shown))
    parts = [
        PagePart("summary", "Verdict", top),
        PagePart("moved", "What moved", moved),
        PagePart("cells", "Cells", table),
        PagePart("history", "History", history),
        PagePart("changed", "Since the baseline", changed),
        PagePart("sweeps", "Sweeps", ending),
    ]
    heading = f"{verdict.suite}: {HEADLINES[verdict.overall]}"
    title = f"{verdict.suite} {verdict.night} · calsweep"
    return document(title, heading, parts, room, attempts.failures)


def _opening(verdict: Verdict) -> Markup:
    shown = verdict.days[-_MOST_DAYS:]
    return rendered(
        "night_summary",
        verdict=verdict,
        days=[(day.night, _kind(day), _day_words(day)) for day in shown],
        missed=[day.night for day in shown if day.status == "missed"],
        unfinished=[day.night for day in shown if day.status == "unfinished"],
        compared=math.isfinite(verdict.speed),
    )


def _kind(day: Day) -> str:
    if day.status == "missed":
        return "missed"
    if day.status in ("unfinished", "failed"):
        return "incomplete"
    return day.verdict or "unknown"


def _day_words(day: Day) -> str:
    words = [
        day.status,
        *([day.verdict] if day.verdict else []),
        *([day.reason] * bool(day.reason)),
    ]
    return ", ".join(dict.fromkeys(words))


def _moved(room: PageBudget, verdict: Verdict, shown: ChartData) -> Markup:
    """The history of what moved, worst first."""
    found = [
        (verdict.lines, (WORSE, BETTER)),
        (verdict.steps, (WORSE,)),  # what the seeds of one night do not show
        (verdict.trends, (DRIFTING,)),
    ]
    moved = [
        (tuple(line[name] for name in CELL), line["metric"])
        for frame, words in found
        for _, line in frame[frame["verdict"].isin(words)].iterrows()
        if line["sweep"] != ALL[0]  # the total has no history of its own
    ]
    panels = [
        _panel(room, cell, metric, shown, f" {title(metric).partition(',')[0]}")
        for cell, metric in list(dict.fromkeys(moved))[:MOST_CHANGED]
    ]
    return macro("night", "moved")(panels) if panels else NOTHING


def _panel(
    room: PageBudget, cell: tuple[str, ...], metric: str, shown: ChartData, also: str = ""
) -> Markup:
    return room.chart(history_chart(cell, metric, shown), cell_name(cell) + also, about="")


def _cells(verdict: Verdict) -> Markup:
    lines = verdict.lines
    if lines.empty:
        return NOTHING
    heads = [
        Head("cell", "sorts by how bad it is"),
        Head("metric", kind="words"),
        Head("baseline", "mean over seeds"),
        Head("tonight", "mean over seeds"),
        Head("change", "tonight less the baseline, with its interval; sorts by the change"),
        Head("verdict", "paired over seeds, p corrected over everything (Holm)", "words"),
    ]
    plain = lines["verdict"].isin(UNREMARKABLE)
    rows = [
        _line(place, line, minor=bool(plain.iloc[place]) and not bool(plain.all()))
        for place, (_, line) in enumerate(lines.iterrows())
    ]
    table = SortableTable("Cells against the baseline", heads, rows, "leaderboard")
    note = convergence_note(lines["converged"])
    return macro("night", "cells")(table, int((~plain).sum()), note)


def _line(place: int, line: pd.Series, *, minor: bool) -> TableRow:
    cost = line["metric"] == "cost"
    shown = seconds if cost else number
    name = cell_name([line[name] for name in CELL]) + dagger(line)
    tested = p_value(float(line["p_holm"])) if pd.notna(line["p_holm"]) else ""
    change = macro("night", "change")(*(cost_words(line) if cost else _difference(line)))
    cells = [
        TableCell(macro("macros", "breakable")(name), float(place)),
        TableCell(title(line["metric"]).partition(",")[0]),
        TableCell(shown(float(line["baseline"])), line["baseline"]),
        TableCell(shown(float(line["tonight"])), line["tonight"]),
        TableCell(change, float(line["difference"])),
        TableCell(macro("macros", "verdict")(str(line["verdict"]), tested)),
    ]
    return TableRow(cells, "minor" if minor else "")


def _difference(line: pd.Series) -> tuple[str, str]:
    if pd.isna(line["difference"]):
        return "–", ""
    low, high = float(line["low"]), float(line["high"])
    known = math.isfinite(low) and math.isfinite(high)
    return f"{line['difference']:+.4f}", f"[{low:+.4f}, {high:+.4f}]" if known else ""


def _history(room: PageBudget, shown: ChartData) -> Markup:
    """All cells' charts, metric by metric; the first is open."""
    blocks = []
    for metric in (*judged(), COST):
        cells = cells_of(shown.history, metric)
        panels = [_panel(room, cell, metric, shown) for cell in cells]
        if any(panels):
            blocks.append((title(metric), panels))
    return macro("night", "history")(blocks) if blocks else NOTHING


def _changed(verdict: Verdict) -> Markup:
    if verdict.baseline is None:
        return NOTHING
    return macro("night", "changed")(verdict, changed_rows(verdict))


def _sweeps(verdict: Verdict) -> Markup:
    heads = [Head("sweep"), Head("trials"), Head("done"), Head("failed"), Head("training")]
    rows = [
        TableRow(
            [
                TableCell(_link(each.name, each.directory), float(place)),
                TableCell(str(each.trials), each.trials),
                TableCell(str(each.done), each.done),
                TableCell(str(each.failed), each.failed),
                TableCell(seconds(each.seconds), each.seconds),
            ]
        )
        for place, each in enumerate(verdict.sweeps)
    ]
    table = SortableTable("Sweeps of the night", heads, rows)
    return macro("night", "sweeps")(table, verdict.reasons)


def _link(name: str, directory: str) -> Markup:
    return macro("night", "link")(f"{RUNS}/{quote(directory)}/report.html", name)
