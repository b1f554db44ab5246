"""A night's report as one HTML file that needs nothing from the network."""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape
from urllib.parse import quote

import pandas as pd

from sweeps.nightly.archive.night import RUNS, Day
from sweeps.nightly.archive.verdict import Verdict
from sweeps.nightly.judge.rules import (
    BETTER,
    CELL,
    COST,
    DRIFTING,
    IDENTICAL,
    UNCHANGED,
    WORSE,
    judged,
)
from sweeps.nightly.report.charts import ChartData, cells_of, history_chart, title
from sweeps.nightly.report.markdown import HEADLINES, changed_rows, cost_words
from sweeps.nightly.report.wording import cell_name
from sweeps.report.attempts import Attempts
from sweeps.report.document import PageBudget, document, folded, missing_html, paragraphs, section
from sweeps.report.html_table import Head, TableCell, TableRow, sortable, text, value
from sweeps.report.leaderboard_table import verdict_html
from sweeps.report.wording import count, number, p_value, seconds

_MOST_DAYS = 42
MOST_CHANGED = 8
"""Charts of cells that have changed, above all others."""
UNREMARKABLE = (IDENTICAL, UNCHANGED)
_WORDS = {
    "Identical to the bit": "Seeds are fixed: with the same code, libraries, machine, specs and "
    "data every number comes out as it did, to its last digit. Then there is nothing to test.",
    "Better, worse": "A cell is compared with the baseline by a test paired over seeds. The "
    "p-values are corrected for all cells and metrics together (Holm), and a change smaller than "
    "the suite's minimum is not called one. What was finite and is infinite, or no number, on "
    "any seed is worse without a test: this rule stands outside the false-alarm level.",
    "No change shown": "Not that there is none: few seeds show large changes only.",
    "Drifting": "Too small a step in any one night, but the same way over many nights.",
    "Missing": "In the baseline and not tonight.",
    "Training time": "Compared as a ratio, after division by how much longer a fixed piece of "
    "reference work took than at the baseline: a busy or slower machine is no regression.",
    "Baseline": "The last accepted night, a diamond in the charts; the dashed line is its mean.",
}
STYLE = """
.verdict-line { font-size: 1.25rem; line-height: 1.45; margin: .6rem 0 1rem; font-weight: 600;
  max-width: 52rem; padding: .7rem 1rem; background: var(--soft);
  border-left: 5px solid var(--muted); }
.verdict-line.identical, .verdict-line.fine { border-color: var(--good); }
.verdict-line.regression, .verdict-line.incomplete { border-color: var(--bad); }
.days { display: flex; flex-wrap: wrap; gap: 4px; padding: 0; margin: 1rem 0 .4rem;
  list-style: none; }
.days li { width: 1.5rem; height: 1.5rem; border-radius: 4px; font-size: .68rem; display: flex;
  align-items: center; justify-content: center; color: var(--paper); background: var(--good); }
.days .regression { background: var(--bad); }
.days .incomplete { background: var(--over); }
.days .unknown { background: var(--muted); }
.days .missed { background: none; border: 1px dashed var(--muted); color: var(--muted); }
.days .tonight { outline: 2px solid var(--ink); outline-offset: 2px; }
.verdict.missing, .verdict.drifting { color: var(--bad); font-weight: 600; }
"""


def night_page(verdict: Verdict, shown: ChartData) -> str:
    """The whole page: the verdict in words, the cells worst first, their history, what changed.

    A chart or table that cannot be made is logged and named; the others are there.
    """
    room, attempts = PageBudget(), Attempts()

    def part(name: str, make: Callable[[], str]) -> str:
        return attempts.part(f"the section {name!r} of the night's page", make, "")

    top = room.take(_opening(verdict))
    changed = part("Since the baseline", lambda: room.take(_changed(verdict)))
    ending = part("Sweeps", lambda: room.take(_sweeps(verdict)))
    table = part("Cells", lambda: room.take(_cells(verdict)))
    remarkable = part("What moved", lambda: _remarkable(room, verdict, shown))
    history = part("History", lambda: _history(room, shown))
    missing = missing_html(attempts.failures)
    body = top + missing + remarkable + table + history + changed + ending
    sections = {"summary": "Verdict"} | ({"missing": "Missing"} if missing else {})
    sections |= {"moved": "What moved"} if remarkable else {}
    sections |= {"cells": "Cells"} if table else {}
    sections |= {"history": "History"} if history else {}
    sections |= {"changed": "Since the baseline"} if changed else {}
    title = f"{verdict.suite} {verdict.night} · calsweep"
    return document(title, body, sections | {"sweeps": "Sweeps"}, room)


def _opening(verdict: Verdict) -> str:
    lead, *others = verdict.sentences
    facts = [
        f"<b>{escape(verdict.night)}</b>",
        f"<b>{sum(each.done for each in verdict.sweeps)}</b> of "
        f"{sum(each.trials for each in verdict.sweeps)} trials done, "
        f"{sum(each.failed for each in verdict.sweeps) or 'none'} failed",
        count(len(verdict.sweeps), "sweep"),
    ]
    if verdict.baseline is not None:
        facts.append(f"baseline {escape(verdict.baseline.night)}")
    if math.isfinite(verdict.speed):
        facts.append(f"reference work ×{verdict.speed:.2f} of the baseline's time")
    listed = "".join(f'<li><p class="say">{_subject(each)}</p></li>' for each in others)
    meanings = "".join(
        f"<dt>{escape(word)}</dt><dd>{escape(said)}</dd>" for word, said in _WORDS.items()
    )
    glossary = folded("What the words mean", f'<dl class="words">{meanings}</dl>')
    return (
        f"<style>{STYLE}</style>"
        f'<header id="summary"><h1>{escape(verdict.suite)}: {HEADLINES[verdict.overall]}</h1>'
        f'<p class="facts">{" · ".join(facts)}</p>'
        f'<p class="verdict-line {verdict.overall}">{escape(lead)}</p>'
        f'<ul class="overview">{listed}</ul>{_days(verdict)}{glossary}</header>'
    )


def _subject(sentence: str) -> str:
    """A sentence with what it is about in bold, where it begins with that."""
    subject, colon, rest = sentence.partition(": ")
    return f"<b>{escape(subject)}</b>{colon}{escape(rest)}" if rest else escape(sentence)


def _days(verdict: Verdict) -> str:
    shown = verdict.days[-_MOST_DAYS:]
    items = "".join(
        f'<li class="{_kind(day)}{" tonight" if day.night == verdict.night else ""}" '
        f'title="{escape(f"{day.night}: {_day_words(day)}")}">{day.night[-2:]}</li>'
        for day in shown
    )
    missed = [day.night for day in shown if day.status == "missed"]
    left = [day.night for day in shown if day.status == "unfinished"]
    notes = [f"Not run: {', '.join(missed)}."] if missed else []
    notes += [f"Not finished, and not judged: {', '.join(left)}."] if left else []
    return (
        f'<ul class="days" aria-label="The last days">{items}</ul>'
        f'<p class="note">{escape(" ".join(notes))}</p>'
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


def _remarkable(room: PageBudget, verdict: Verdict, shown: ChartData) -> str:
    """The history of what moved, worst first."""
    found = [(verdict.lines, (WORSE, BETTER)), (verdict.trends, (DRIFTING,))]
    moved = [
        (tuple(line[name] for name in CELL), line["metric"])
        for frame, words in found
        for _, line in frame[frame["verdict"].isin(words)].iterrows()
    ]
    charts = [
        _panel(room, cell, metric, shown, f" {title(metric).partition(',')[0]}")
        for cell, metric in list(dict.fromkeys(moved))[:MOST_CHANGED]
    ]
    if not charts:
        return ""
    return section("moved", "What moved", f'<div class="panels">{"".join(charts)}</div>')


def _panel(
    room: PageBudget, cell: tuple[str, ...], metric: str, shown: ChartData, also: str = ""
) -> str:
    chart = history_chart(cell, metric, shown)
    return room.chart(chart, f"<b>{escape(cell_name(cell) + also)}</b>")


def _cells(verdict: Verdict) -> str:
    lines = verdict.lines
    if lines.empty:
        return ""
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
    tools = ""
    if plain.any() and not plain.all():
        moved = int((~plain).sum())
        tools = (
            '<div class="tools"><fieldset aria-label="Rows"><button type="button" '
            'data-toggle="all-rows" data-on="0" aria-pressed="true">'
            f'{count(moved, "line")} that moved</button><button type="button" '
            'data-toggle="all-rows" data-on="1" aria-pressed="false">'
            f"all {len(lines)}</button></fieldset></div>"
        )
    table = sortable("Cells against the baseline", heads, rows, "leaderboard")
    return section("cells", "Cells against the baseline", tools + table)


def _line(place: int, line: pd.Series, *, minor: bool) -> TableRow:
    cell = tuple(line[name] for name in CELL)
    cost = line["metric"] == "cost"
    change, bounds = cost_words(line) if cost else _difference(line)
    shown = seconds if cost else number
    words = verdict_html(str(line["verdict"]), float("nan"))
    tested = p_value(float(line["p_holm"])) if pd.notna(line["p_holm"]) else ""
    cells = [
        TableCell(escape(cell_name(cell)).replace("_", "_<wbr>"), float(place)),
        text(title(line["metric"]).partition(",")[0]),
        value(line["baseline"], shown(float(line["baseline"]))),
        value(line["tonight"], shown(float(line["tonight"]))),
        TableCell(f"{escape(change)} <small>{escape(bounds)}</small>", float(line["difference"])),
        TableCell(f"{words} <small>{escape(tested)}</small>"),
    ]
    return TableRow(cells, "minor" if minor else "")


def _difference(line: pd.Series) -> tuple[str, str]:
    if pd.isna(line["difference"]):
        return "–", ""
    low, high = float(line["low"]), float(line["high"])
    known = math.isfinite(low) and math.isfinite(high)
    return f"{line['difference']:+.4f}", f"[{low:+.4f}, {high:+.4f}]" if known else ""


def _history(room: PageBudget, shown: ChartData) -> str:
    """All cells' charts, metric by metric; the first is open."""
    blocks: list[str] = []
    for metric in (*judged(), COST):
        cells = cells_of(shown.history, metric)
        panels = "".join(_panel(room, cell, metric, shown) for cell in cells)
        if panels:
            grid = f'<div class="panels">{panels}</div>'
            blocks.append(folded(title(metric), grid, opened=not blocks))
    if not blocks:
        return ""
    note = paragraphs(
        [
            "Means over seeds with their 95 % intervals, night by night. A diamond is the "
            "baseline, the dashed line its mean; a point in orange is a night that was worse, "
            "in green one that was better. Nights that were not complete are left out."
        ]
    )
    return section("history", "History", note + "".join(blocks))


def _changed(verdict: Verdict) -> str:
    if verdict.baseline is None:
        return ""
    rows = changed_rows(verdict)
    if rows:
        body = "".join(
            f"<tr><th scope='row'>{escape(what)}</th><td>{escape(before)}</td>"
            f"<td>{escape(now)}</td></tr>"
            for what, before, now in rows
        )
        content = (
            '<div class="scroll" tabindex="0"><table class="plain"><thead><tr><th>what</th>'
            "<th>at the baseline</th><th>tonight</th></tr></thead>"
            f"<tbody>{body}</tbody></table></div>"
        )
    else:
        content = paragraphs(["Code, libraries, machine, specs and data are the baseline's."])
    if verdict.commits:
        listed = "\n".join(verdict.commits)
        content += f"<h3>Commits since the baseline</h3><pre>{escape(listed)}</pre>"
    about = verdict.baseline
    content += paragraphs(
        [
            f"The baseline is the night of {about.night}, accepted on {about.accepted_at[:10]} by "
            f"{about.accepted_by}: {about.reason}."
        ]
    )
    if verdict.acceptable:
        content += f"<p>To accept tonight instead:</p><pre>{escape(verdict.accept)}</pre>"
    return section("changed", "Since the baseline", content)


def _sweeps(verdict: Verdict) -> str:
    heads = [Head("sweep"), Head("trials"), Head("done"), Head("failed"), Head("training")]
    rows = [
        TableRow(
            [
                TableCell(_linked(each.name, each.directory), float(place)),
                value(each.trials, str(each.trials)),
                value(each.done, str(each.done)),
                value(each.failed, str(each.failed)),
                value(each.seconds, seconds(each.seconds)),
            ]
        )
        for place, each in enumerate(verdict.sweeps)
    ]
    reasons = ""
    if verdict.reasons:
        listed = "".join(f"<li>{escape(reason)}</li>" for reason in verdict.reasons)
        reasons = f'<p class="warn">Not complete:</p><ul>{listed}</ul>'
    table = sortable("Sweeps of the night", heads, rows)
    return section("sweeps", "The night's sweeps", reasons + table)


def _linked(name: str, directory: str) -> str:
    return f'<a href="{RUNS}/{escape(quote(directory))}/report.html">{escape(name)}</a>'
