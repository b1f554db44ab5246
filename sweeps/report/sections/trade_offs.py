"""Error and cost against calibration."""

from __future__ import annotations

import math

from markupsafe import Markup

from sweeps.report.section import ReportContext, Section
from sweeps.report.templates import NOTHING, macro
from sweeps.report.trade_off_charts import cost_chart, pareto_chart


def _trade_offs(context: ReportContext) -> Markup:
    analysis, room = context.analysis, context.room
    points = context.of_dataset(analysis.fronts)
    if points.empty:
        return NOTHING
    points = points.dropna(subset=["error", "ece"])
    tidy = analysis.results.dropna(subset=["hyperparameters"])
    used = {
        (row["dataset"], row["row"]): row["hyperparameters"]
        for _, row in tidy.drop_duplicates(["dataset", "row"]).iterrows()
    }
    volume = analysis.hypervolumes.get(context.dataset, math.nan)
    charts = [
        room.chart(pareto_chart(points, context.styles, used, volume)),
        room.chart(cost_chart(points, context.styles, used)),
    ]
    return macro("macros", "charts")("Trade-offs", charts)


section = Section("Trade-offs", _trade_offs)
