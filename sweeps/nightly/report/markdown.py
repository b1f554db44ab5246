"""A night's short report in Markdown, and wording shared with the page."""

from __future__ import annotations

import math
from urllib.parse import quote

import pandas as pd

from sweeps.nightly.archive.nights import RUNS
from sweeps.nightly.archive.results import CELL
from sweeps.nightly.judge.rules import BUSY_MACHINE, IDENTICAL, UNCHANGED
from sweeps.nightly.judge.verdict import MOST_DAYS, Verdict
from sweeps.nightly.judge.wording import cell_name, percent
from sweeps.nightly.report.charts import title
from sweeps.report.escaping import markdown_text
from sweeps.report.wording import convergence_note, count, dagger, number, p_value, seconds

HEADLINES = {
    "identical": "identical",
    "fine": "no regression shown",
    "regression": "regression",
    "incomplete": "incomplete",
}
_MOST_LINES = 20
SPEC_WORDS = {
    "git": "revision",
    "code": "source files (digest)",
    "modules": "your own modules (digest)",
    "cpu": "processor",
    "cpu of this machine": "processor of this machine",
    "site customisation": "sitecustomize and .pth files (digest)",
    "suite": "the suite's file (digest)",
}


def night_markdown(verdict: Verdict) -> str:
    """The verdict, the cells that moved, the changed identity, and the sweeps."""
    lead, *others = verdict.sentences
    parts = [
        f"# {verdict.suite} {verdict.night}: {HEADLINES[verdict.overall]}",
        f"**{markdown_text(lead)}**",
        *map(markdown_text, others),
        *_moved(verdict),
        *_changed(verdict),
        *_sweeps(verdict),
        *_days(verdict),
    ]
    return "\n\n".join(parts) + "\n"


def changed_rows(verdict: Verdict) -> list[tuple[str, str, str]]:
    """The differences from the baseline's identity, in words."""
    return [
        (SPEC_WORDS.get(each.what, each.what), each.before or "–", each.now or "–")
        for each in verdict.changed
    ]


def cost_words(line: pd.Series) -> tuple[str, str]:
    """A relative change of training work and its interval, in per cent."""
    if pd.isna(line["difference"]):
        return "–", ""
    low, high = float(line["low"]), float(line["high"])
    known = math.isfinite(low) and math.isfinite(high)
    return percent(line["difference"]), f"[{percent(low)}, {percent(high)}]" * known


def _moved(verdict: Verdict) -> list[str]:
    lines = verdict.lines
    moved = (
        lines[~lines["verdict"].isin((IDENTICAL, UNCHANGED, BUSY_MACHINE))] if len(lines) else lines
    )
    if moved.empty:
        return []
    rows = [
        "| cell | metric | baseline | tonight | change | verdict |",
        "|---|---|--:|--:|--:|---|",
    ]
    for _, line in moved.head(_MOST_LINES).iterrows():
        cell = cell_name([line[name] for name in CELL]) + dagger(line)
        cost = line["metric"] == "cost"
        shown = seconds if cost else number
        change = cost_words(line)[0] if cost else f"{line['difference']:+.4f}"
        p = p_value(float(line["p_holm"])) if pd.notna(line["p_holm"]) else ""
        words = [
            markdown_text(cell),
            title(line["metric"]).partition(",")[0],
            shown(float(line["baseline"])),
            shown(float(line["tonight"])),
            change if pd.notna(line["difference"]) else "–",
            f"{line['verdict']}{f' ({p})' if p else ''}",
        ]
        rows.append(f"| {' | '.join(words)} |")
    left = len(moved) - _MOST_LINES
    notes = [f"… and {left} more."] if left > 0 else []
    notes.append(convergence_note(moved["converged"].head(_MOST_LINES)).strip())
    return ["## Cells", "\n".join(rows), *filter(None, notes)]


def _changed(verdict: Verdict) -> list[str]:
    if verdict.baseline is None:
        return []
    listed = [
        f"- {markdown_text(f'{what}: {before} → {now}')}"
        for what, before, now in changed_rows(verdict)
    ]
    commits = [f"- {markdown_text(commit)}" for commit in verdict.commits]
    sentences = ["## Since the baseline", "\n".join(listed) or "No known change."]
    return [*sentences, *(["Commits:", "\n".join(commits)] if commits else [])]


def _sweeps(verdict: Verdict) -> list[str]:
    rows = ["| sweep | trials | done | failed | training |", "|---|--:|--:|--:|--:|"]
    for each in verdict.sweeps:
        link = f"[{markdown_text(each.name)}]({RUNS}/{quote(each.directory)}/report.html)"
        numbers = f"{each.trials} | {each.done} | {each.failed} | {seconds(each.seconds)}"
        rows.append(f"| {link} | {numbers} |")
    return ["## Sweeps", "\n".join(rows)]


def _days(verdict: Verdict) -> list[str]:
    recent = verdict.days[-MOST_DAYS:]
    sentences = []
    for status, words in (
        ("missed", "not run"),
        ("unfinished", "not finished"),
        ("failed", "failed"),
    ):
        nights = [day.night for day in recent if day.status == status]
        if nights:
            sentences.append(f"{count(len(nights), 'night')} {words}: {', '.join(nights)}.")
    return [" ".join(sentences)] if sentences else []
