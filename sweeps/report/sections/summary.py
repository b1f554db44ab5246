"""What came of the sweep in a few sentences, and what their words mean."""

from __future__ import annotations

from markupsafe import Markup

from sweeps.report.headline import Headline, across, headlines, outdated
from sweeps.report.section import ReportContext, Section
from sweeps.report.templates import rendered


def _summary(context: ReportContext) -> Markup:
    sweep, analysis = context.sweep, context.analysis
    sentences = [
        *headlines(sweep, analysis).values(),
        Headline(across(analysis)),
        Headline(outdated(sweep, analysis)),
    ]
    return context.room.take(
        rendered("summary", sweep=sweep, baseline=analysis.baseline, sentences=sentences)
    )


section = Section("Summary", _summary, "summary")
