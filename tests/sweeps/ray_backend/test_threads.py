"""What a trial occupies changes no number; the threads that train it do, and its key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from sweeps.engine.cell import PlannedTrial
from sweeps.engine.estimate import estimate
from sweeps.engine.plan import Plan
from sweeps.ray_backend.assignment import ASSIGNMENT, AssignedTrial, Assignment, Terms
from sweeps.ray_backend.trainable import CalibrationTrial
from sweeps.spec import SpecError, load_spec
from sweeps.store import Store
from tests.trained import no_pictures

SPEC: dict[str, Any] = {
    "name": "threads",
    "datasets": [{"name": "blobs-1.7", "points": 8000}],
    "model": {"name": "mlp", "widths": [32]},
    "methods": {"standard": {"lr": 0.05, "weight_decay": 0.0}},
    "training": {"epochs": 4, "batch_size": "full"},
    "confirm_seeds": 1,
    "calibrators": ["platt_probabilities"],
}
NUMBERS = ("config", "curve", "best_epoch", "epochs", "parameters", "validation")


@pytest.fixture(autouse=True)
def _no_pictures() -> Iterator[None]:
    with no_pictures():
        yield


def plan(directory: Path, **changes: Any) -> Plan:
    directory.mkdir(exist_ok=True)
    (directory / "spec.yaml").write_text(yaml.safe_dump(SPEC | changes))
    made = Plan(load_spec(directory / "spec.yaml"), Store(directory / "runs"))
    made.replay()
    return made


def confirmed(swept: Plan) -> PlannedTrial:
    cell = next(iter(swept.cells.values()))
    return swept._make.confirm_trial(cell, cell.study.space.fixed, 0)


def trained(swept: Plan, cpu: float, process_threads: int) -> tuple[Any, ...]:
    """The record, predictions and evaluations of a trial that a worker with ``cpu`` has trained."""
    spec, trial, store = swept.spec, confirmed(swept), swept.store
    terms = replace(Terms.of(spec, store.root), cpu=cpu, block=600.0)
    config = {ASSIGNMENT: Assignment((AssignedTrial(trial.config, trial.study_id, ()),), terms)}
    before = torch.get_num_threads()
    torch.set_num_threads(process_threads)  # as Ray lets it be: by what an actor occupies
    try:
        assert CalibrationTrial(config).step()["done"]
        assert torch.get_num_threads() == process_threads
    finally:
        torch.set_num_threads(before)
    record = store.record(trial.key)
    assert record is not None
    assert record.resources["cpu"] == cpu
    kept = {name: getattr(record, name) for name in NUMBERS}
    arrays = {name: value.numpy().tobytes() for name, value in store.predictions(record).items()}
    found = store.evaluations(record, spec.evaluation.tag)
    clock = {"fit_seconds": 0, "made": 0}
    return kept, arrays, {name: each.model_copy(update=clock) for name, each in found.items()}


def test_what_a_trial_occupies_changes_no_bit(tmp_path: Path) -> None:
    one, two, four = (
        trained(plan(tmp_path / str(cpu), resources={"cpu": cpu}), cpu, cpu) for cpu in (1, 2, 4)
    )
    assert one == two == four


def test_the_threads_of_a_training_are_part_of_its_key(tmp_path: Path) -> None:
    training = SPEC["training"] | {"threads": 2}
    one = plan(tmp_path / "one", resources={"cpu": 2})
    two = plan(tmp_path / "two", resources={"cpu": 2}, training=training)
    assert confirmed(one).key != confirmed(two).key
    # The reason: a sum that two threads share has other last bits.
    (alone, *_), (shared, *_) = trained(one, 2, 1), trained(two, 2, 1)
    assert alone["curve"] != shared["curve"]
    assert alone["curve"][-1]["validation/nll"] == pytest.approx(
        shared["curve"][-1]["validation/nll"], rel=1e-3
    )


def test_rows_have_their_own_threads_and_every_thread_a_cpu(tmp_path: Path) -> None:
    methods = {"standard": {}, "wide": {"method": "standard", "training": {"threads": 3}}}
    for changes, where in (
        ({"methods": methods}, "methods.wide.training.threads: found 3"),
        ({"training": {"threads": 3}, "resources": {"cpu": 0.5}}, "training.threads: found 3"),
    ):
        with pytest.raises(SpecError, match=re.escape(where)) as refused:
            plan(tmp_path, **changes)
        assert "resources: {cpu: 3}" in str(refused.value)
    made = plan(tmp_path, methods=methods, resources={"cpu": 3})
    assert [made.spec.row_training(row).threads for row in methods] == [1, 3]
    plan(tmp_path, resources={"cpu": 0.1})  # one thread may share a CPU with others
    assert all(seconds > 0 for seconds in estimate(made.loaded).values())
