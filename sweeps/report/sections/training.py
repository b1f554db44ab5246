"""Curves over the epochs of training."""

from __future__ import annotations

from markupsafe import Markup

from sweeps.report.chart import looks
from sweeps.report.gather import CURVES
from sweeps.report.line_charts import curves_chart
from sweeps.report.section import ReportContext, Section
from sweeps.report.templates import NOTHING, macro

CURVE_NOTES = {
    "validation/ece": "First seed. It may rise while the network still improves.",
    "validation/nll": "First seed. By default the network of its lowest point is kept.",
    "validation/gamma_mean": "The focal parameter that γ-Net gives validation points. First seed.",
    "validation/gamma_std": "How much γ differs from point to point. First seed.",
}


def _training(context: ReportContext) -> Markup:
    methods = context.sweep.spec.methods
    plain = looks(((method, "identity") for method in methods), methods)
    styles = {method: look for (method, _), look in plain.items()}
    charts = [
        context.room.chart(curves_chart(CURVES[column], CURVE_NOTES[column], named, styles))
        for column, named in context.gathered.curves[context.dataset].items()
    ]
    return macro("macros", "charts")("Training", charts) if charts else NOTHING


section = Section("Training", _training)
