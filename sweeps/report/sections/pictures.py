"""Pictures of a dataset, as far as they fit; the file names of the others."""

from __future__ import annotations

from markupsafe import Markup

from sweeps.report.images import small
from sweeps.report.section import ReportContext, Section
from sweeps.report.templates import NOTHING, macro


def _pictures(context: ReportContext) -> Markup:
    mine = [each for each in context.pictures if each.dataset == context.dataset and each.title]
    made = [
        context.room.take(
            macro("pictures", "picture")(each, small(each.png)), macro("pictures", "left_out")(each)
        )
        for each in mine
    ]
    return macro("pictures", "pictures")(made) if made else NOTHING


section = Section("Pictures", _pictures, last=True)
