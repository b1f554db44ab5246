"""A trial's key: what changes a number changes it, and nothing else does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from calibration.data import Protocol
from calibration.hyperparameters import Choice as OneOf
from calibration.hyperparameters import Domain, Integer, LogUniform, Uniform
from calibration.methods.standard import Standard
from calibration.metrics import METRICS
from calibration.models import ModelOptions
from calibration.optimisers import SGD, Adam
from calibration.training import TrainingRun
from calibration.training_config import TrainingConfig
from sweeps.engine import identity as trial_key
from sweeps.engine.cell import Cells
from sweeps.engine.identity import TrialConfig
from sweeps.engine.networks import fresh_run
from sweeps.engine.plan import Plan
from sweeps.ray_backend.handshake import UnfitNodeError, check_device
from sweeps.search.domains import parse_hyperparameter, written
from sweeps.search.samplers.tpe import TPE
from sweeps.spec import load_spec
from sweeps.spec.schema import Component, Resources
from sweeps.store import Store

GIVEN = TrialConfig(
    dataset=Component(name="table", options={"path": "/data/rows.csv"}),
    dataset_name="rows",
    fingerprint="0123456789abcdef",
    protocol=Protocol(name="honest", drawn_validation=0.3),
    model=Component(name="mlp", options={"widths": [64, 64]}),
    method="standard",
    hyperparameters={"lr": 0.01, "weight_decay": 0.0},
    training=TrainingConfig(epochs=20),
    seed=3,
    phase="search",
)
KEY = "b4207c61c34a31365a057185804c9928"
OTHER: dict[type[BaseModel], dict[str, Any]] = {
    TrialConfig: {
        "fingerprint": "0",
        "protocol": Protocol(name="honest"),
        "model": Component(name="mlp", options={"widths": [64]}),
        "method": "focal",
        "hyperparameters": {"lr": 0.02, "weight_decay": 0.0},
        "training": TrainingConfig(),
        "seed": 4,
        "phase": "confirm",
        "device": "cuda",
        "encoder": "fedcba9876543210",
        "any_seed": True,
    },
    TrainingConfig: {
        "epochs": 21,
        "batch_size": "full",
        "optimiser": "sgd",
        "momentum": 0.8,
        "clip_norm": 1.0,
        "ema_decay": 0.9,
        "warmup_epochs": 3,
        "schedule": "cosine",
        "milestones": (0.5,),
        "decay": 0.2,
        "augmentation": "crop_flip",
        "stop_on": "error",
        "stop_ties": "latest",
        "patience": 5,
        "evaluate_every": 2,
        "mixed_precision": True,
        "threads": 2,
        "kernels": "deterministic",
        "channels_last": True,
    },
    Protocol: {
        "validation": 0.2,
        "meta_validation": 0.2,
        "drawn_validation": 0.2,
        "share_validation": True,
        "choice": 0.5,
        "same_training_rows": True,
    },
}
"""Another value of every field that can change a number."""
WITHOUT_EFFECT: dict[type[BaseModel], dict[str, Any]] = {
    TrialConfig: {
        # where the rows lie; the fingerprint says what they are
        "dataset": Component(name="arrays"),
        "dataset_name": "others",
        "objective": ("ece", "accuracy"),  # compares trials; its metric's version counts, below
    },
    TrainingConfig: {"reliability_snapshots": 6},  # of confirm trials alone, which keep them
    Protocol: {"name": "mine"},
}


def changed(owner: type[BaseModel], field: str, value: Any) -> TrialConfig:
    if owner is TrialConfig:
        return GIVEN.model_copy(update={field: value})
    place = "training" if owner is TrainingConfig else "protocol"
    part = getattr(GIVEN, place).model_copy(update={field: value})
    return GIVEN.model_copy(update={place: part})


def test_the_key_of_a_trial_stays_what_it_is() -> None:
    """If this fails, every record that anybody has is trained again: was that meant?"""
    assert GIVEN.key() == KEY
    assert TrialConfig.model_validate_json(GIVEN.model_dump_json()).key() == KEY


@pytest.mark.parametrize("owner", OTHER)
def test_every_field_is_in_the_key_or_known_to_change_no_number(owner: type[BaseModel]) -> None:
    assert OTHER[owner].keys() | WITHOUT_EFFECT[owner].keys() == owner.model_fields.keys()
    assert not OTHER[owner].keys() & WITHOUT_EFFECT[owner].keys()
    others = {changed(owner, name, value).key() for name, value in OTHER[owner].items()}
    assert len(others | {KEY}) == len(OTHER[owner]) + 1
    for name, value in WITHOUT_EFFECT[owner].items():
        assert changed(owner, name, value).key() == KEY


def test_versions_of_what_decides_a_number_are_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    class Later:
        version = 2

    metrics = dict(METRICS.items())
    keys = [KEY]
    for place, name, value in (
        (Standard, "version", 2),
        (ModelOptions, "version", 2),
        (Adam, "version", 2),
        (trial_key, "TRAINING_LOOP_VERSION", 1000),
        (trial_key, "METRICS", {**metrics, "nll": Later}),  # by which the best epoch is chosen
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, value, raising=True)
            keys.append(GIVEN.key())
    assert len(set(keys)) == len(keys)
    monkeypatch.setattr(SGD, "version", 2)
    monkeypatch.setattr(trial_key, "METRICS", {**metrics, "ece": Later, "accuracy": Later})
    assert GIVEN.key() == KEY
    # A search is led by what its trials have recorded of the objective.
    for objective in ("ece", "accuracy"):
        assert GIVEN.model_copy(update={"objective": (objective,)}).key() not in keys


def test_a_searched_optimiser_brings_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = GIVEN.model_copy(
        update={"hyperparameters": {**GIVEN.hyperparameters, "optimiser": "sgd"}}
    )
    before = searched.key()
    assert before != KEY
    monkeypatch.setattr(SGD, "version", 2)
    assert searched.key() != before


SPEC = """\
name: keyed
datasets: [iris]
methods: {standard: {lr: [0.01, 0.1], weight_decay: 0}}
"""


def test_a_searched_optimiser_stands_in_the_trial_and_only_then(tmp_path: Path) -> None:
    searched = SPEC.replace("weight_decay: 0", "optimiser: [adam, nesterov]")
    (tmp_path / "spec.yaml").write_text(searched)
    cells = Cells(load_spec(tmp_path / "spec.yaml"))
    assert cells.spec.space("standard").searched["optimiser"] == OneOf(("adam", "nesterov"))
    trials = [
        cells.config("iris", "standard", {"lr": 0.1} | own, 0, "search")
        for own in ({}, {"optimiser": "adam"}, {"optimiser": "nesterov"})
    ]
    assert len({trial.key() for trial in trials}) == 3
    assert "optimiser" not in trials[0].hyperparameters
    run = fresh_run(trials[2])
    assert isinstance(run, TrainingRun)
    assert run.learner.optimiser == SGD(nesterov=True)


def test_a_study_follows_its_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def study(further: str = "", rows: str = SPEC) -> str:
        (tmp_path / "spec.yaml").write_text(f"{rows}{further}\n")
        plan = Plan(load_spec(tmp_path / "spec.yaml"), Store(tmp_path / "runs"))
        return next(iter(plan.cells.values())).study_id

    assert study() == study("resources: {cpu: 2}") == study("search: {trials: 30}")
    different = [
        study(),
        study("training: {epochs: 7}"),
        study("search: {sampler: random}"),
        study("search: {objective: ece}"),
        study("search: {seed: 4}"),
        study("scheduler: asha"),
        study("scheduler: {name: asha, reduction: 2}"),
        study("resources: {gpu: 1}"),
        study(rows=SPEC.replace("[0.01, 0.1]", "{uniform: [0.01, 0.1]}")),
        study(rows=SPEC.replace("[0.01, 0.1]", "{loguniform: [0.01, 0.1]}")),
    ]
    with monkeypatch.context() as patch:
        patch.setattr(TPE, "version", 2)
        different.append(study())
    monkeypatch.setattr(trial_key, "TRAINING_LOOP_VERSION", 1000)
    different.append(study())
    assert len(set(different)) == len(different)


@pytest.mark.parametrize(
    "domain", [OneOf((2, "a", True)), Uniform(0, 1), LogUniform(0.1, 1), Integer(1, 9, log=True)]
)
def test_a_written_domain_is_read_again(domain: Domain) -> None:
    assert parse_hyperparameter(written(domain)) == (domain, {})


def test_the_type_of_device_is_known_before_a_trial_runs() -> None:
    assert Resources().trains_on == "cpu"
    assert Resources(gpu=0.25).trains_on == Resources(gpu="auto").trains_on == "cuda"
    assert Resources(gpu=0.25, device="cpu").trains_on == "cpu"


def test_a_node_without_cuda_trains_nothing_that_says_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    check_device("cpu", "10.0.0.7")
    with pytest.raises(UnfitNodeError, match=r"node 10\.0\.0\.7 has no GPU .* \{gpu: 0\}"):
        check_device("cuda", "10.0.0.7")


@pytest.mark.parametrize(
    ("build", "cuda", "driver", "told"),
    [
        ("2.9.0+cpu", None, "", "torch 2.9.0+cpu, built without CUDA, and no NVIDIA driver"),
        ("2.9.0+cpu", None, "535.1", "driver 535.1; install a CUDA build of torch"),
        ("2.9.0+cu128", "12.8", "535.1", "update the driver to one for CUDA 12.8"),
        ("2.9.0+cu128", "12.8", "", "no NVIDIA driver; install the driver"),
    ],
)
def test_what_a_node_lacks_for_cuda_is_named(
    monkeypatch: pytest.MonkeyPatch, build: str, cuda: str | None, driver: str, told: str
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.__version__", build)
    monkeypatch.setattr("torch.version.cuda", cuda)
    monkeypatch.setattr("sweeps.ray_backend.handshake.driver_version", lambda: driver)
    with pytest.raises(UnfitNodeError) as refused:
        check_device("cuda", "n7")
    assert "node n7" in str(refused.value)
    assert told in str(refused.value)
