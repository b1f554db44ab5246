"""How the sweep was made, what failed in it, and how to run it again."""

from __future__ import annotations

from markupsafe import Markup

from sweeps.report.gather import Gathered
from sweeps.report.section import ReportContext, Section
from sweeps.report.table import Head, SortableTable, TableCell, TableRow
from sweeps.report.templates import rendered

_MOST_SEEDS = 20


def _provenance(context: ReportContext) -> Markup:
    sweep, gathered = context.sweep, context.gathered
    first = sweep.spec.seed + 1
    versions = [
        (times, ", ".join(f"{name} {version}" for name, version in found if version))
        for found, times in gathered.environments.items()
        if found
    ]
    made = rendered(
        "provenance",
        sweep=sweep,
        failed=_failed(gathered),
        seeds=range(first, first + sweep.spec.confirm_seeds),
        most_seeds=_MOST_SEEDS,
        versions=versions,
    )
    return context.room.take(made)


def _failed(gathered: Gathered) -> list[SortableTable]:
    """Failures and their reasons; a table without rows is omitted."""
    trials = [
        [TableCell(f"{f.row} on {f.dataset}"), TableCell(str(f.seed), f.seed), TableCell(f.reason)]
        for f in gathered.failures
    ]
    reasons = [
        [TableCell(reason), TableCell(str(times), times)]
        for reason, times in gathered.reasons.items()
    ]
    calibrators = [
        [TableCell(name), TableCell(reason)] for name, reason in gathered.failed_calibrators.items()
    ]
    kinds = [
        (
            "Failed confirm trials",
            [Head("confirm trial"), Head("seed"), Head("reason", kind="words")],
            trials,
        ),
        ("Reasons for failures", [Head("reason for a failed trial"), Head("trials")], reasons),
        (
            "Failed calibrators",
            [Head("calibrator that failed"), Head("one of its reasons", kind="words")],
            calibrators,
        ),
    ]
    return [
        SortableTable(name, heads, [TableRow(cells) for cells in rows], "plain")
        for name, heads, rows in kinds
        if rows
    ]


section = Section("How it was made", _provenance, "made")
