"""Ensembles of a row's confirmed networks: shown beside the rows, but not compared.

An ensemble is a single observation, whatever the number of its members. The ensembles without
one member share all but two of their networks and are not replicates: they give a jackknife
standard error, but no test. Validation rows of one member are training rows of another, so an
ensemble has no validation NLL and cannot be chosen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from sweeps.analysis.records import SweepRecords
from sweeps.analysis.selection import Selection
from sweeps.store import EvaluationRecord
from sweeps.store.ensembles import ensemble_name, reduced_name


def ensembles(sweep: SweepRecords, selection: Selection) -> pd.DataFrame:
    """One line per (dataset, row, calibrator) whose ensemble was evaluated.

    METRIC_se is the jackknife standard error over members, ``train_seconds`` the time of all
    trainings, ``inference_cost`` how many networks a prediction takes. ``headline`` marks the
    bare networks and the row's chosen calibrator.
    """
    return pd.DataFrame(_lines(sweep, selection))


def with_ensembles(table: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """The leaderboard, followed by the ensembles, which are never chosen and never win."""
    if found.empty:
        return table
    return pd.concat([table, found.drop(columns="headline")], ignore_index=True)


def jackknife_error(values: Sequence[float]) -> float:
    """√((R−1)/R · Σ (θ_i − mean)²), θ_i the statistic without member i (Tukey 1958)."""
    size = len(values)
    mean = sum(values) / size
    return math.sqrt((size - 1) / size * sum((value - mean) ** 2 for value in values))


def _lines(sweep: SweepRecords, selection: Selection) -> Iterator[dict[str, Any]]:
    for dataset in sweep.loaded.datasets:
        for row in sweep.spec.methods:
            trials = sweep.confirmed(dataset, row)
            done = [trial.done for trial in trials if trial.done is not None]
            if not trials or len(done) < len(trials):
                continue
            for calibrator in sweep.spec.calibrator_names:
                size = len(trials)
                whole = trials[0].evaluations.get(ensemble_name(size, calibrator))
                reduced = [t.evaluations.get(reduced_name(size, calibrator)) for t in trials]
                parts = [part for part in reduced if part is not None and not part.failed]
                if whole is None or whole.failed or len(parts) < size:
                    continue
                yield {
                    "dataset": dataset,
                    "row": f"ensemble of {size}: {row}",
                    "calibrator": calibrator,
                    **_measured(whole, parts),
                    "seeds": size,
                    "train_seconds": _seconds([record.seconds_alone for record in done]),
                    "inference_cost": size,
                    "headline": calibrator == "identity"
                    or selection.is_chosen(dataset, row, calibrator),
                }


def _seconds(alone: Sequence[float]) -> float:
    """The time of all trainings one after the other, those in company as long as the others."""
    known = [seconds for seconds in alone if not math.isnan(seconds)]
    return sum(known) / len(known) * len(alone) if known else math.nan


def _measured(whole: EvaluationRecord, parts: Sequence[EvaluationRecord]) -> dict[str, Any]:
    line: dict[str, Any] = dict(whole.test)
    for name in whole.test:
        line[f"{name}_se"] = jackknife_error([part.test.get(name, math.nan) for part in parts])
    line["floor"], line["floor_q95"] = whole.floor or (math.nan, math.nan)
    return line | {"converged": float(whole.converged), "chosen": False, "winner": False}
