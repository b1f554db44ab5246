"""Reliability diagrams of a dataset's headline rows."""

from __future__ import annotations

from markupsafe import Markup

from calibration import metrics
from sweeps.report.document import PageBudget
from sweeps.report.reliability_charts import reliability_charts
from sweeps.report.section import DrawnPredictions, ReportContext, Section
from sweeps.report.templates import NOTHING, rendered

FEW_PANELS = 8


def reliability_diagrams(
    room: PageBudget, shown: DrawnPredictions, bins: int, seeds: str, files: str
) -> Markup:
    """Reliability diagrams side by side; more than a few are hidden behind a button."""
    if not shown:
        return NOTHING
    panels = []
    for name, chart in reliability_charts(shown, bins).items():
        error = float(metrics.ece(*shown[name], bins=bins))
        floor = float(metrics.noise_floor(shown[name][0], bins=bins).mean)
        about = f"ECE {error:.3f} · floor {floor:.3f}"
        panels.append(room.chart(chart, about=about, instead=f"{files}_reliability.png"))
    return rendered("reliability", panels=panels, few=FEW_PANELS, seeds=seeds)


def _reliability(context: ReportContext) -> Markup:
    bins, seeds = context.sweep.spec.bins, _seeds(context)
    if context.sweep.loaded.datasets[context.dataset].weighted:
        seeds = f"{seeds} Diagrams, with the ECE and floor above them, show rows unweighted."
    return reliability_diagrams(context.room, context.shown, bins, seeds, context.files)


def _seeds(context: ReportContext) -> str:
    rows = context.gathered.shown[context.dataset].items()
    seeds = sorted({row.seed for _, row in rows})
    if not seeds:
        return ""
    if len(seeds) == 1:
        return f"Only seed {seeds[0]}: pooling seeds would make intervals look too narrow."
    others = ", ".join(f"{name}: {row.seed}" for name, row in rows if row.seed != seeds[0])
    return f"One seed of each row, {seeds[0]} (but {others})."


section = Section("Reliability", _reliability)
