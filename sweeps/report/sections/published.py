"""Our values beside the published ones, one table per dataset."""

from __future__ import annotations

from markupsafe import Markup

from sweeps.report.paper_table import notes, table_rows
from sweeps.report.section import ReportContext, Section
from sweeps.report.templates import NOTHING, rendered


def _published(context: ReportContext) -> Markup:
    lines, table = context.published, context.sweep.spec.table
    if lines is None or table is None:
        return NOTHING
    tables = {
        dataset: table_rows(lines[lines["dataset"] == dataset], table)
        for dataset in context.sweep.loaded.datasets
    }
    note = notes(context.sweep, lines)
    return context.room.take(rendered("published", title=table.title, tables=tables, note=note))


section = Section("Published", _published, "published")
