"""A sweep whose records are made up, so that what an analysis must say of it is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from calibration.evaluation import LabelledLogits, evaluate_oracle
from calibration.metrics.row_scores import RowScores
from sweeps.analysis import Analysis
from sweeps.analysis.comparisons import by_row
from sweeps.analysis.records import SweepRecords
from sweeps.engine.cell import PlannedTrial
from sweeps.engine.plan import Options, Plan
from sweeps.spec import ORACLE, load_spec
from sweeps.store import Store, encode_arrays
from sweeps.sweep import records_of
from tests.outcomes import evaluation as evaluated
from tests.outcomes import outcome

SPEC = """\
name: analysed
datasets: [blobs-1.7, iris, wine]
model: {name: mlp, widths: [4]}
methods:
  standard: {weight_decay: {uniform: [0.0, 0.001]}}
  focal: {lr: 0.1, weight_decay: 0, gamma: [1, 2, 3]}
  label_smoothing: {lr: 0.1, weight_decay: 0, epsilon: 0.1}
search: {trials: 6, sampler: random}
confirm_seeds: 4
calibrators: [temperature, isotonic_top_label]
resources: {cpu: 2, gpu: 0.5}
"""
SMALL = SPEC.replace("[blobs-1.7, iris, wine]", "[iris]")
# By method and calibrator: validation NLL, and how far ECE is from the plain baseline's 0.05.
PLANTED = {
    ("standard", "identity"): (0.50, 0.0),
    ("standard", "temperature"): (0.40, 0.0),
    ("focal", "identity"): (0.45, -0.04),
    ("focal", "temperature"): (0.30, -0.03),
    ("label_smoothing", "identity"): (0.35, 0.03),
    ("label_smoothing", "temperature"): (0.60, -0.045),
}
Change = Callable[[PlannedTrial, dict[str, Any]], dict[str, Any]]


def evaluation(trial: PlannedTrial, name: str) -> dict[str, Any]:
    """What a confirmed trial's calibrator was measured to be."""
    rng = np.random.default_rng([len(trial.row), len(name), trial.config.seed])
    validation, change = PLANTED[trial.row, "temperature" if name == "temperature" else "identity"]
    ece = 0.05 + change + 0.002 * trial.config.seed + 0.002 * rng.random()
    test = {"ece": ece, "error": round(0.2 + 0.01 * rng.random(), 3)}
    held_back = {"ece": ece, "error": 0.2}
    if name != "isotonic_top_label":
        test |= {"nll": 0.4 + change, "brier": 0.3 + 0.01 * rng.random()}
        held_back["nll"] = validation
    return {
        "test": test,
        "intervals": {"ece": (ece - 0.02, ece + 0.03)},
        "floor": (0.01, 0.02),
        "validation": held_back,
        "converged": True,
    }


def scores(test: dict[str, float]) -> RowScores:
    """Scores of 1000 test rows with these means; what a row is worth differs from row to row."""
    rows = torch.arange(1000)
    around = 0.01 * torch.cos(2 * math.pi * rows / 1000)

    def parts(metric: str) -> torch.Tensor | None:
        return (test[metric] + around).float() if metric in test else None

    correct = rows >= round(1000 * test["error"])
    return RowScores(torch.full((1000,), 0.9), correct, parts("nll"), parts("brier"), "labels")


def as_it_is(trial: PlannedTrial, record: dict[str, Any]) -> dict[str, Any]:
    return record


def train(plan: Plan, trial: PlannedTrial, change: Change = as_it_is) -> None:
    """File the record a real trial would: NLL by one hyperparameter, time by row and trial."""
    hyperparameters = trial.config.hyperparameters
    searched = "gamma" if trial.row == "focal" else "lr"
    seconds = 2.0 if trial.row == "focal" else 1.0
    began = 100.0 * trial.number + (1000.0 if trial.config.phase == "confirm" else 0.0)
    record = {
        "status": "done",
        "validation": {"nll": float(hyperparameters[searched]) ** 0.5, "ece": 0.1},
        "curve": [],
        "seconds": seconds,
        "times": [began + seconds / 2, began + seconds],
        "resources": {"cpu": 2.0, "gpu": 0.5},
    }
    found = outcome(**change(trial, record))
    rows = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    arrays = {"test_logits": rows, "test_labels": torch.tensor([1, 1])}
    if trial.config.dataset_name == "blobs-1.7":
        arrays["test_posterior"] = rows.softmax(-1).double()
    confirmed = trial.config.phase == "confirm" and found.status == "done"
    files = {"predictions.npz": encode_arrays(arrays)} if confirmed else {}
    plan.store.file_record(trial.key, found, files)
    tag = plan.spec.evaluation.tag
    if confirmed and "test_posterior" in arrays:
        test = LabelledLogits(rows, arrays["test_labels"], arrays["test_posterior"])
        oracle = asdict(evaluate_oracle(test, seed=trial.config.seed))
        del oracle["rows"]
        plan.store.write_evaluation(trial.key, tag, ORACLE, evaluated("identity", **oracle))
    if confirmed:
        for name in plan.spec.calibrator_names:
            measured = evaluated(name, **evaluation(trial, name))
            rows = scores(measured.test)
            plan.store.write_evaluation(trial.key, tag, name, measured, rows)


def fresh(directory: Path, text: str = SPEC) -> Plan:
    path = directory / "spec.yaml"
    path.write_text(text)
    plan = Plan(load_spec(path), Store(directory / "runs"))
    plan.replay()
    return plan


def swept(directory: Path, text: str = SPEC, change: Change = as_it_is) -> Plan:
    plan = fresh(directory, text)
    while (trial := plan.next()) is not None:
        train(plan, trial, change)
        plan.complete(trial.key)
    assert plan.finished
    return plan


def read(plan: Plan) -> SweepRecords:
    """A sweep's records as a later command reads them."""
    reading = Plan(plan.loaded, plan.store, Options(persist=False))
    reading.replay()
    return records_of(reading)


def seeds_of(analysis: Analysis, dataset: str, method: str, calibrator: str) -> pd.DataFrame:
    tidy = analysis.results
    same = (tidy["row"] == method) & (tidy["calibrator"] == calibrator)
    return tidy[same & (tidy["dataset"] == dataset)].set_index("seed").sort_index()


def line(analysis: Analysis, dataset: str, method: str, metric: str, calibrator: str) -> pd.Series:
    table = by_row(analysis.comparisons)
    here = (table["dataset"] == dataset) & (table["metric"] == metric)
    (found,) = table[here & (table["row"] == method) & (table["calibrator"] == calibrator)].index
    return table.loc[found]
