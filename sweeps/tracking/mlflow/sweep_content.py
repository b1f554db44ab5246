"""The content of a sweep's own run, from its plan and its leaderboard.

A sweep may be extended and its spec changed, but parameters of a run can never change: so the
spec is recorded in tags.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np
import pandas as pd

from calibration.metrics import METRICS, Shown
from sweeps.analysis.selection import CHOSEN_BY, CHOSEN_BY_ERROR
from sweeps.engine.plan import Plan
from sweeps.tracking.mlflow.run_content import LONGEST_NAME, LONGEST_TAG

TABLE = "leaderboard.json"
TABLES = "mlflow.loggedArtifacts"
"""The tag by which MLflow's UI knows which JSON files to show as tables."""
NOTE = "mlflow.note.content"


def sweep_tags(plan: Plan, summary: str) -> dict[str, str]:
    """The sweep's spec as tags, and a Markdown description of its outcome."""
    search = plan.spec.search
    asked = {
        "datasets": ", ".join(plan.loaded.datasets),
        "methods": ", ".join(plan.spec.methods),
        "calibrators": ", ".join(plan.spec.calibrator_names),
        "sampler": search.sampler,
        "objective": ", ".join(objective.metric for objective in search.objective),
        "trials": str(plan.total),
        "seeds": str(plan.spec.confirm_seeds),
    }
    tags = {f"calsweep.{name}": value for name, value in asked.items()} | {NOTE: summary}
    return {name: value[:LONGEST_TAG] for name, value in tags.items()}


def winner_metrics(leaderboard: pd.DataFrame) -> dict[str, float]:
    """``winner/METRIC/DATASET`` on test data, averaged over the seeds."""
    if leaderboard.empty:
        return {}
    found = {
        f"winner/{metric}/{_metric_part(row['dataset'])}"[:LONGEST_NAME]: row[metric]
        for _, row in leaderboard[leaderboard["winner"]].iterrows()
        for metric in METRICS.names(Shown.LEADERBOARD)
        if metric in leaderboard
    }
    return {name: float(value) for name, value in found.items() if pd.notna(value)}


def table_json(leaderboard: pd.DataFrame) -> bytes:
    """The leaderboard's main columns in the form that MLflow's UI shows as a table."""
    shown = leaderboard[[name for name in _columns() if name in leaderboard]].copy()
    # An unknown spread (one seed) has no column; the table is for reading: four digits.
    shown = shown.dropna(axis="columns", how="all")
    data = [[_cell(value) for value in row] for row in shown.itertuples(index=False)]
    return json.dumps({"columns": list(shown.columns), "data": data}, allow_nan=False).encode()


def _columns() -> list[str]:
    reported = METRICS.names(Shown.LEADERBOARD)
    return [
        *("dataset", "row", "calibrator", *reported, "floor", CHOSEN_BY, CHOSEN_BY_ERROR),
        *("chosen", "winner", "tied", "seeds"),
        *(f"{metric}_ci_{end}" for metric in reported for end in ("low", "high")),
        *(f"{metric}_sd" for metric in reported),
        *("true_ce", "train_seconds", "converged"),
    ]


def _cell(value: Any) -> Any:
    """A JSON value: None for NaN, and Python's numbers for numpy's."""
    if isinstance(value, float):
        return float(f"{value:.4g}") if math.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


def _metric_part(name: str) -> str:
    """A dataset's name as a part of a metric's, in which MLflow allows few characters."""
    return re.sub(r"[^\w. :-]", "_", name).strip(".") or "_"
