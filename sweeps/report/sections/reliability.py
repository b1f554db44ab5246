"""Reliability diagrams of a dataset's headline rows."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup
from torch import Tensor

from calibration import metrics
from sweeps.report.document import PageBudget
from sweeps.report.reliability_charts import reliability_charts
from sweeps.report.section import DrawnPredictions, ReportContext, Section
from sweeps.report.templates import NOTHING, rendered

FEW_PANELS = 8


def reliability_diagrams(
    room: PageBudget,
    shown: DrawnPredictions,
    bins: int,
    remarks: str,
    files: str,
    groups: Mapping[str, Tensor | None] | None = None,
) -> Markup:
    """Reliability diagrams side by side; more than a few are hidden behind a button.

    ``groups`` are those of a name's rows, where they have any.
    """
    if not shown:
        return NOTHING
    panels = []
    known = groups or {}
    for name, chart in reliability_charts(shown, bins, known).items():
        confidence, correct = shown[name]
        error = float(metrics.ece(confidence, correct, bins=bins))
        floor = metrics.noise_floor(confidence, bins=bins, correct=correct, groups=known.get(name))
        about = f"ECE {error:.3f} · floor {floor.mean:.3f}"
        panels.append(room.chart(chart, about=about, instead=f"{files}_reliability.png"))
    return rendered("reliability", panels=panels, few=FEW_PANELS, remarks=remarks)


def _reliability(context: ReportContext) -> Markup:
    data = context.sweep.loaded.datasets[context.dataset]
    groups = {name: row.groups for name, row in context.gathered.shown[context.dataset].items()}
    return reliability_diagrams(
        context.room,
        context.shown,
        context.sweep.spec.bins,
        " ".join([_seeds(context), *remarks_on(data.test_groups is not None, data.weighted)]),
        context.files,
        groups,
    )


def remarks_on(grouped: bool, weighted: bool) -> list[str]:
    """What a reader of the diagrams must know about groups and weights."""
    found = []
    if grouped:
        found.append("Rows of a group err together: intervals, band and floor are for new groups.")
    if weighted:
        found.append("Diagrams, with the ECE and floor above them, show rows unweighted.")
    return found


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
