"""The state of a running sweep, as one JSON value. Nothing here changes the plan.

It is taken in a thread other than the driver's: changing values may be slightly out of date.
Validation numbers only: test data is for the report, when all seeds are done.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from sweeps.engine.cell import PlannedTrial
from sweeps.engine.plan import Plan
from sweeps.engine.progress import describe_best
from sweeps.store import StoreError

MOST_RUNNING, MOST_ENDED, CURVE_POINTS = 24, 24, 120
_CURVES = ("validation/nll", "train/loss")
"""The metric of a curve: the first of these that it has."""


def snapshot(plan: Plan, began: float) -> dict[str, Any]:
    """Counts, cells, the leaderboard so far, running and recently ended trials, with curves.

    ``began`` is when the driver started the sweep, in seconds since 1970.
    """
    cells = list(plan.cells.values())
    ended = [trial for trial in list(plan.trials.values()) if plan.summary(trial) is not None]
    return {
        "sweep": plan.spec.name,
        "state": "finished" if plan.finished else "running",
        "began": began,
        "seconds": time.time() - began,
        "trials": {
            "total": plan.total,
            "done": plan.done,
            "failed": plan.failed,
            "pruned": plan.pruned,
            "running": sum(cell.running for cell in cells),
        },
        "cells": [
            {
                "dataset": cell.dataset,
                "row": cell.row,
                "done": cell.done,
                "total": cell.total,
                "running": cell.running,
                "failed": cell.failed,
                "best": describe_best(plan, cell),
            }
            for cell in cells
        ],
        "leaderboard": _leaderboard(plan, ended),
        "running": [_running(plan, trial) for trial in plan.running[:MOST_RUNNING]],
        "ended": [_ended(plan, trial) for trial in ended[: -MOST_ENDED - 1 : -1]],
    }


def _leaderboard(plan: Plan, ended: Sequence[PlannedTrial]) -> list[dict[str, Any]]:
    """Mean validation NLL of the confirm trials so far, best first within each dataset."""
    found: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
    for trial in ended:
        result = plan.result(trial)
        for name, evaluation in result.evaluations.items() if result else ():
            if "nll" in evaluation.validation:
                found[*trial.cell, name].append(evaluation.validation["nll"])
    rows = [
        {"dataset": d, "row": row, "calibrator": name, "seeds": len(v), "nll": _finite(mean(v))}
        for (d, row, name), v in found.items()
    ]
    worst = math.inf
    return sorted(rows, key=lambda r: (r["dataset"], worst if r["nll"] is None else r["nll"]))


def _running(plan: Plan, trial: PlannedTrial) -> dict[str, Any]:
    try:
        live = plan.store.live(trial.key) or {}
    except StoreError:
        live = {}
    curve = live.get("curve", ())
    epoch = int(curve[-1]["epoch"]) if curve else 0
    total = trial.config.training.epochs
    return _about(trial) | {"epoch": epoch, "epochs": total, "curve": curve_points(curve)}


def _ended(plan: Plan, trial: PlannedTrial) -> dict[str, Any]:
    summary = plan.summary(trial)
    assert summary is not None
    about = {"status": summary.status, "epoch": summary.epochs, "reason": summary.reason[:300]}
    return _about(trial) | about | {"nll": _finite(summary.nll), "seconds": summary.seconds}


def _about(trial: PlannedTrial) -> dict[str, Any]:
    dataset, row = trial.cell
    phase = trial.config.phase
    return {"dataset": dataset, "row": row, "phase": phase, "number": trial.number}


def curve_points(curve: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """At most ``CURVE_POINTS`` of a curve: its metric, and pairs of epoch and value."""
    for name in _CURVES:
        rows = [
            (row["epoch"], row[name]) for row in curve if math.isfinite(row.get(name, math.nan))
        ]
        if rows:
            step = math.ceil(len(rows) / CURVE_POINTS)
            return {"metric": name, "points": [*rows[:-1:step], rows[-1]]}
    return {"metric": "", "points": []}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
