"""The report of a sweep as one HTML file that needs nothing from the network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pandas as pd

from sweeps.analysis import Analysis
from sweeps.analysis.records import SweepRecords
from sweeps.report.attempts import Attempts
from sweeps.report.document import PageBudget, PagePart, document
from sweeps.report.gather import Gathered
from sweeps.report.images import Picture
from sweeps.report.section import ReportContext
from sweeps.report.sections import SECTIONS
from sweeps.report.templates import NOTHING, rendered


def page(
    sweep: SweepRecords,
    analysis: Analysis,
    gathered: Gathered,
    pictures: Sequence[Picture],
    published: pd.DataFrame | None,
    attempts: Attempts,
) -> str:
    """The whole page: ``SECTIONS`` in their order, those about a dataset for every dataset.

    It is smaller than ``document.PAGE_LIMIT``: charts come before pictures, and parts that do not
    fit are named with their files. Failures are named too, here or earlier in ``attempts``.
    """
    whole = ReportContext(sweep, analysis, gathered, pictures, published, PageBudget())
    about = [replace(whole, dataset=name) for name in sweep.loaded.datasets]
    own = [section for section in SECTIONS if section.anchor]
    repeated = [section for section in SECTIONS if not section.anchor]
    tasks = [(section, whole) for section in own]
    tasks += [(section, context) for context in about for section in repeated]
    made = {}
    for section, context in sorted(tasks, key=lambda task: task[0].last):
        name = f"the section {section.name!r}"
        name += f" of {context.dataset}" if context.dataset else ""
        render = partial(section.render, context)
        made[section, context.dataset] = attempts.part(name, render, NOTHING)
    parts = []
    for section in SECTIONS:
        if section.anchor:
            parts.append(PagePart(section.anchor, section.name, made[section, ""]))
        elif section is repeated[0]:
            for place, context in enumerate(about):
                anchor = f"data-{place}"
                contents = [made[each, context.dataset] for each in repeated]
                html = rendered("dataset", anchor=anchor, name=context.dataset, contents=contents)
                parts.append(PagePart(anchor, context.dataset, html))
    title = f"{sweep.spec.name} · calsweep"
    return document(title, sweep.spec.name, parts, whole.room, attempts.failures)
