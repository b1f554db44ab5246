"""Reliability by class: of two, the rarer one for every row; of several, for the chosen row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from calibration.metrics.class_view import ClassSummary, ClassView
from sweeps.analysis.results import label
from sweeps.report.class_charts import class_chart
from sweeps.report.document import PageBudget
from sweeps.report.section import ReportContext, Section
from sweeps.report.table import Head, SortableTable, TableCell, TableRow
from sweeps.report.templates import NOTHING, rendered
from sweeps.report.wording import number

_FEW_PANELS = 8


def class_reliability(
    room: PageBudget,
    views: Mapping[str, ClassView],
    names: Sequence[str],
    chosen: str,
) -> Markup:
    """Diagrams and a table of the classes; ``views`` are by row, ``chosen`` is the one to use."""
    if not views:
        return NOTHING
    lead = chosen if chosen in views else next(iter(views))
    two = len(names) == 2
    shown = views if two else {lead: views[lead]}
    panels = []
    for row, view in shown.items():
        by_number = {summary.number: summary for summary in view.summaries}
        for k, bins in view.drawn.items():
            title = row if two else names[k]
            chart = class_chart(title, names[k], bins, by_number[k])
            panels.append(room.chart(chart, about=_about(by_number[k])))
    drawn = list(views[lead].drawn)
    each = "each class's probability"
    if len(drawn) < len(views[lead].summaries):
        each = f"the probabilities of the {len(drawn)} rarest classes"
    made = rendered(
        "classes",
        panels=panels,
        few=_FEW_PANELS,
        table=classes_table(views[lead].summaries, names, lead),
        row=lead,
        of=f"the probability of {names[drawn[0]]}" if two else f"{each}, by {lead}",
        left=len(names) - len(views[lead].summaries),
    )
    return room.take(made)


def _about(summary: ClassSummary) -> str:
    return f"ECE {number(summary.ece, 4)} · share {number(summary.share, 4)}"


def classes_table(
    summaries: Sequence[ClassSummary], names: Sequence[str], row: str
) -> SortableTable:
    """The classes of one row, the rarest first."""
    heads = [
        Head("class", "sorts by frequency, the rarest first"),
        Head("test points"),
        Head("share", "of the test points"),
        Head("mean probability", "of the class, over all test points"),
        Head("bias", "mean probability minus share: above 0 the class is expected too often"),
        Head("ECE", "of the class's probability, in bins of equal mass"),
        Head("AUROC", "the class against the rest"),
        Head("average precision", "by guessing it is the share"),
    ]
    rows = []
    for place, one in enumerate(summaries):
        cells = [TableCell(names[one.number], float(place)), TableCell(f"{one.rows:,}", one.rows)]
        cells += [TableCell(number(v, 4), v) for v in (one.share, one.mean)]
        cells.append(TableCell(f"{one.bias:+.4f}", one.bias))
        cells += [TableCell(number(v, 4), v) for v in (one.ece, one.auroc, one.average_precision)]
        rows.append(TableRow(cells))
    return SortableTable(f"Classes of {row}", heads, rows)


def _classes(context: ReportContext) -> Markup:
    drawn = context.gathered.shown[context.dataset]
    views = {name: row.classes for name, row in drawn.items() if row.classes is not None}
    rows = context.rows
    won = rows[rows["winner"]] if len(rows) else rows
    chosen = label(won["row"].iloc[0], won["calibrator"].iloc[0]) if len(won) else ""
    names = context.sweep.loaded.datasets[context.dataset].class_names
    return class_reliability(context.room, views, names, chosen)


section = Section("Classes", _classes)
