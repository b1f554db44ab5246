"""The recommendation, the outcome in a few sentences, and a glossary."""

from __future__ import annotations

from markupsafe import Markup

from sweeps.report.blindness import blindness
from sweeps.report.headline import across, headlines, outdated
from sweeps.report.section import ReportContext, Section
from sweeps.report.templates import rendered


def _summary(context: ReportContext) -> Markup:
    sweep, analysis = context.sweep, context.analysis
    found = analysis.recommendation
    outcomes = headlines(sweep, analysis)
    answers = [(advice, outcomes[advice.dataset]) for advice in found.datasets]
    more = [across(analysis), outdated(sweep, analysis)]
    return context.room.take(
        rendered(
            "summary",
            sweep=sweep,
            baseline=analysis.baseline,
            overall=found.sentence if len(answers) > 1 else "",
            answers=answers,
            sentences=[*blindness(sweep, analysis).values(), *more],
        )
    )


section = Section("Summary", _summary, "summary")
