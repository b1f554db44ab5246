"""The cost of every row, and its gain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sweeps.analysis.comparisons import CHOSEN, Baseline
from sweeps.analysis.records import SweepRecords
from sweeps.analysis.verdicts import TOO_FEW
from sweeps.store import TrialSummary

_COLUMNS = [
    *("dataset", "row", "search_trials", "failed", "pruned", "search_seconds"),
    *("confirm_trials", "confirm_seconds", "cpu_seconds", "gpu_seconds", "wall_seconds"),
    *("seconds_per_training", "relative_cost", "ece_change", "error_change", "verdict"),
]


class _Spent(NamedTuple):
    """Totals of some trials of a cell; a shared record counts once."""

    trials: int
    failed: int
    pruned: int
    seconds: float
    gpu_seconds: float
    spans: list[tuple[float, float]]
    per_training: float


def costs(sweep: SweepRecords, comparisons: pd.DataFrame, baseline: Baseline) -> pd.DataFrame:
    """One line per dataset and row, from the records of its search and confirm trials.

    Seconds are those of training; ``cpu_seconds`` multiplies them by what the spec gives
    every trial, ``gpu_seconds`` by the share of a GPU that each had. ``wall_seconds`` is the
    time during which at least one trial was in training, from its first epoch to its last;
    cells that take turns share it. ``seconds_per_training`` is the mean of the confirmed
    trials that were trained alone (CPU seconds, unless they had a GPU), ``relative_cost`` its
    ratio to the baseline's: in a cohort a trial has a share of the time, which says nothing of
    what its method costs.
    ``ece_change`` and ``error_change`` are the differences of the chosen comparison, as in
    ``compare``; ``verdict`` is that on ECE.

    A record made by another sweep counts with its original cost.
    """
    lines = []
    for (dataset, method), cell in sweep.cells.items():
        search = _spent([trial.summary for trial in cell.search])
        confirm = _spent([trial.summary for trial in cell.confirmed])
        seconds = search.seconds + confirm.seconds
        lines.append(
            {
                "dataset": dataset,
                "row": method,
                "search_trials": search.trials,
                "failed": search.failed + confirm.failed,
                "pruned": search.pruned,
                "search_seconds": search.seconds,
                "confirm_trials": confirm.trials,
                "confirm_seconds": confirm.seconds,
                "cpu_seconds": seconds * sweep.spec.resources.cpu,
                "gpu_seconds": search.gpu_seconds + confirm.gpu_seconds,
                "wall_seconds": _covered([*search.spans, *confirm.spans]),
                "seconds_per_training": confirm.per_training,
                **_gains(comparisons, dataset, method),
            }
        )
    table = pd.DataFrame(lines, columns=_COLUMNS)
    own = table[table["row"] == baseline.row].set_index("dataset")["seconds_per_training"]
    table["relative_cost"] = table["seconds_per_training"] / table["dataset"].map(own)
    return table


def _spent(trials: Sequence[TrialSummary | None]) -> _Spent:
    there = [trial for trial in trials if trial is not None]
    records = {trial.key: trial for trial in there}.values()
    states = [trial.status for trial in there]
    done = [record.seconds_alone for record in records if record.status == "done"]
    alone = [seconds for seconds in done if not np.isnan(seconds)]
    return _Spent(
        trials=len(states),
        failed=states.count("failed"),
        pruned=states.count("pruned"),
        seconds=sum(record.seconds for record in records),
        gpu_seconds=sum(record.seconds * record.gpu for record in records),
        spans=[record.span for record in records if record.span is not None],
        per_training=float(np.mean(alone)) if alone else np.nan,
    )


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """The length of the spans' union."""
    total, reached = 0.0, -np.inf
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def _gains(comparisons: pd.DataFrame, dataset: str, method: str) -> dict[str, Any]:
    same = (comparisons["dataset"] == dataset) & (comparisons["row"] == method)
    rows = comparisons[same & (comparisons["comparison"] == CHOSEN)]
    by_metric = {row["metric"]: row for row in rows.to_dict("records")}
    if not by_metric:
        return {"ece_change": np.nan, "error_change": np.nan, "verdict": TOO_FEW}
    return {
        "ece_change": by_metric["ece"]["difference"],
        "error_change": by_metric["error"]["difference"],
        "verdict": by_metric["ece"]["verdict"],
    }
