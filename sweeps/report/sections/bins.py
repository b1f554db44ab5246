"""How the errors depend on the number of bins, and the benefit of abstaining."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

from sweeps.report.chart import Look
from sweeps.report.document import PageBudget
from sweeps.report.line_charts import bins_chart, coverage_chart
from sweeps.report.section import DrawnPredictions, ReportContext, Section
from sweeps.report.templates import NOTHING, macro


def bins_and_abstention(
    room: PageBudget, shown: DrawnPredictions, styles: Mapping[str, Look], files: str
) -> Markup:
    """Bin robustness and risk–coverage."""
    if not shown:
        return NOTHING
    charts = [
        room.chart(bins_chart(shown, styles), instead=f"{files}_bins.png"),
        room.chart(coverage_chart(shown, styles), instead=f"{files}_coverage.png"),
    ]
    return macro("macros", "charts")("Bins and abstention", charts)


def _bins(context: ReportContext) -> Markup:
    drawn = context.gathered.shown[context.dataset].items()
    styles = {name: context.styles[row.row, row.calibrator] for name, row in drawn}
    return bins_and_abstention(context.room, context.shown, styles, context.files)


section = Section("Bins and abstention", _bins)
