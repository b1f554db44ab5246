"""The content of a trial's MLflow run: names, numbers, tags and files, from its outcome.

Everything here is a function of the store's content, including the times, except for those of a
trial that never trained: publishing it again writes the same.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from calibration.learners.estimator import TRAINING_SETTINGS
from sweeps.engine.cell import PlannedTrial
from sweeps.engine.identity import TrialConfig
from sweeps.engine.plan import Plan
from sweeps.engine.progress import format_value
from sweeps.spec import ORACLE
from sweeps.store import EvaluationRecord, Store, TrialRecord
from sweeps.store.ensembles import is_ensemble
from sweeps.tracking.mlflow.database import MetricPoint
from sweeps.tracking.mlflow.predictions_table import predictions_parquet

SWEEP, KEY, PHASE = "calsweep.sweep", "calsweep.key", "calsweep.phase"
ROW, STATUS, REASON = "calsweep.row", "calsweep.status", "calsweep.reason"
COMPANY = "calsweep.company"
LINEAGE, PUBLISHED = "calsweep.lineage", "calsweep.published"
CALIBRATOR, WINNER = "calsweep.calibrator", "calsweep.winner"
"""Tags of confirmed runs after the sweep's end: the row's chosen calibrator; true or false."""
ROW_PLACE, DECIDED, TESTED = "calsweep.place", "calsweep.validation_nll", "calsweep.test_nll"
"""Likewise: the row's place on its dataset, and its means over seeds with that calibrator."""
COLOUR = "mlflow.runColor"
"""MLflow's own tag; all runs of a row share a colour, unless a user has changed it."""
SUPERSEDED = "calsweep.superseded"
"""Tag of runs whose trial is no longer part of the sweep."""
CELL_TAG = "row"
"""Row and dataset, to group runs by: its short name is in every label of a grouped chart."""
PARENT, COMMIT = "mlflow.parentRunId", "mlflow.source.git.commit"
EVERY_ROW_HAS = ("train/lr", "validation/nll")
"""A metric in every row of a network's or estimator's curve: its history shows how far the curve
is published."""
ENDS = {"done": "FINISHED", "failed": "FAILED", "pruned": "KILLED"}
METRIC_NAMES = "PART/METRIC:CALIBRATOR"
"""Version of the names of results, part of every stamp: runs with other names are replaced."""
# Limits of MLflow's databases for one name, parameter and tag.
LONGEST_NAME, LONGEST_PARAMETER, LONGEST_TAG = 250, 6000, 5000

Evaluations = Mapping[str, EvaluationRecord]


def run_name(plan: Plan, trial: PlannedTrial) -> str:
    """A name that distinguishes runs: row, dataset, seed or number, and what was searched."""
    config = trial.config
    searched = plan.cells[trial.cell].study.space.searched
    hyperparameters = [f"{n}={format_value(config.hyperparameters[n])}" for n in searched]
    where = f"seed {config.seed}" if config.phase == "confirm" else f"#{trial.number}"
    return " ".join([trial.row, config.dataset_name, where, *hyperparameters])[:LONGEST_NAME]


def parameters(config: TrialConfig) -> dict[str, str]:
    """The settings. The row is a tag: parameters can never change, and a row may be renamed."""
    values: dict[str, Any] = {"seed": config.seed}
    values |= {"dataset": config.dataset_name, "method": config.method}
    values |= config.hyperparameters
    concerns = None if config.model is not None else set(TRAINING_SETTINGS)
    training = config.training.model_dump(include=concerns)
    values |= {f"training.{k}": v for k, v in training.items()}
    values |= {} if config.model is None else {"model": config.model.name}
    return {name: str(value)[:LONGEST_PARAMETER] for name, value in values.items()}


def trial_tags(sweep: str, trial: PlannedTrial, lineage: str) -> dict[str, str]:
    """The tags of a run from its start."""
    return {
        SWEEP: sweep,
        KEY: trial.key,
        "calsweep.dataset": trial.config.dataset_name,
        "calsweep.method": trial.config.method,
        "calsweep.fingerprint": trial.config.fingerprint,
        PHASE: trial.config.phase,
        LINEAGE: lineage,
        **_row_tags(trial),
    }


def outcome_tags(trial: PlannedTrial, outcome: TrialRecord) -> dict[str, str]:
    """The tags known only at a trial's end; the row's name, too, may have changed by then."""
    tags = {**_row_tags(trial), STATUS: outcome.status}
    if outcome.reason:
        tags[REASON] = outcome.reason[:LONGEST_TAG]
    if outcome.company > 1:
        tags[COMPANY] = str(outcome.company)
    revision = outcome.environment.get("git")
    return tags | ({COMMIT: str(revision)} if revision else {})


def _row_tags(trial: PlannedTrial) -> dict[str, str]:
    cell = f"{trial.row} · {trial.config.dataset_name}"
    return {ROW: trial.row[:LONGEST_TAG], CELL_TAG: cell[:LONGEST_TAG]}


def stamp(trial: PlannedTrial, outcome: TrialRecord, tag: str, evaluations: Evaluations) -> str:
    """A fingerprint of the content of a complete run.

    It changes when calibrators are added or evaluated by another version, when evaluation or
    naming changes (its first part), and when the trial was recorded again.
    """
    parts = ["search"]
    if trial.config.phase == "confirm":
        names = [
            f"{name} {found.version}" for name, found in sorted(evaluated(evaluations).items())
        ]
        digest = hashlib.sha256(",".join(names).encode()).hexdigest()[:12]
        parts = [measured_by(tag), f"{len(names)} calibrators", digest]
    return ",".join([*parts, outcome.attempt])


def measured_by(tag: str) -> str:
    """The first part of a confirmed run's stamp: how it was evaluated and its numbers named.

    MLflow cannot delete metrics: with another first part a run is created again.
    """
    return f"{tag} {METRIC_NAMES}"


def evaluated(evaluations: Evaluations) -> dict[str, EvaluationRecord]:
    """The calibrators that have numbers."""
    return {name: evaluation for name, evaluation in evaluations.items() if not evaluation.failed}


def of_calibrators(evaluations: Evaluations) -> Evaluations:
    """The evaluations of this network, without those of the oracle and of ensembles."""
    return {
        name: evaluation
        for name, evaluation in evaluations.items()
        if name != ORACLE and not is_ensemble(name)
    }


def curve_rows(
    curve: Sequence[Mapping[str, Any]], times: Sequence[float], *, after: int, whole: bool
) -> list[list[MetricPoint]]:
    """The evaluated epochs after step ``after``, and the last epoch of a ``whole`` curve."""
    rows: list[list[MetricPoint]] = []
    for index, row in enumerate(curve):
        step = int(row["epoch"])
        last = whole and index == len(curve) - 1
        if step <= after or not (last or any(name.startswith("validation/") for name in row)):
            continue
        at = milliseconds(times[index])
        values = ((name, float(value)) for name, value in row.items() if name != "epoch")
        rows.append(
            [MetricPoint(n, value, at, step) for n, value in values if math.isfinite(value)]
        )
    return [row for row in rows if row]


def result_points(outcome: TrialRecord, evaluations: Evaluations) -> Iterator[MetricPoint]:
    """A trial's results: chosen epoch, test and cross-fitted validation by calibrator."""
    for name, value, at in _results(outcome, evaluations):
        if math.isfinite(value):
            yield MetricPoint(name, value, at, 0)


def _results(outcome: TrialRecord, evaluations: Evaluations) -> Iterator[tuple[str, float, int]]:
    """Names, values and times; for each name MLflow shows the latest."""
    end = span(outcome)[1]
    plain = evaluated(evaluations).get("identity")
    for name, value in outcome.validation.items():
        # For a confirmed trial it was measured again, with the sweep's own number of bins.
        if plain is None or name not in plain.validation:
            yield f"selected/{name}", value, end
    if outcome.times and outcome.company == 1:  # a share of a cohort's time is not a method's cost
        yield "train_seconds", outcome.seconds, end
    for chosen, evaluation in evaluated(evaluations).items():
        made = milliseconds(evaluation.made)
        for name, value in _evaluation(evaluation):
            # Sorted, a metric's calibrators follow it: test/ece, test/ece:beta,
            # test/ece:temperature.
            yield name if chosen == "identity" else f"{name}:{chosen}", value, made


def _evaluation(evaluation: EvaluationRecord) -> Iterator[tuple[str, float]]:
    for name, value in evaluation.test.items():
        yield f"test/{name}", value
    for name, (low, high) in evaluation.intervals.items():
        yield f"test/{name}_low", low
        yield f"test/{name}_high", high
    for name, value in zip(("floor", "floor_q95"), evaluation.floor or (), strict=False):
        yield f"test/{name}", value
    for name, value in evaluation.large.items():
        yield f"test/large_{name}", value
    for name, value in evaluation.validation.items():
        yield f"selected/{name}", value


def span(outcome: TrialRecord) -> tuple[int, int]:
    """When a trial began and ended, in milliseconds; both are now if unknown."""
    begin, end = outcome.span or (time.time(),) * 2
    return milliseconds(begin), milliseconds(end)


def milliseconds(seconds: float) -> int:
    """MLflow's unit of time."""
    return round(seconds * 1000)


def trial_files(store: Store, trial: PlannedTrial, outcome: TrialRecord) -> dict[str, bytes]:
    """A run's artifacts: the record, and for confirmed trials the data behind the figures."""
    files = {"record.json": outcome.model_dump_json().encode()}
    if trial.config.phase == "search" or outcome.status != "done":
        return files
    files["predictions.parquet"] = predictions_parquet(store.predictions(outcome))
    further = {
        "history.npz": store.file(outcome, "history.npz"),
        "reliability.png": store.extra(outcome, "reliability.png"),
    }
    return files | {name: content for name, content in further.items() if content is not None}
