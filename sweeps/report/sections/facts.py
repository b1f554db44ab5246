"""The kind of a dataset, and its number of test points."""

from __future__ import annotations

from markupsafe import Markup

from sweeps.report.section import ReportContext, Section
from sweeps.report.templates import rendered
from sweeps.spec.data_notes import data_notes

KINDS = {"points": "points in the plane", "table": "a table", "image": "images", "text": "texts"}


def _facts(context: ReportContext) -> Markup:
    data = context.sweep.loaded.datasets[context.dataset]
    made = rendered(
        "facts",
        data=data,
        kind=KINDS[data.kind],
        tested=len(data.test(context.sweep.spec.seed + 1).labels),
        notes=data_notes(data),
        confirmed=not context.rows.empty,
    )
    return context.room.take(made)


section = Section("Facts", _facts)
