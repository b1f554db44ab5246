"""Reliability diagrams along a training: what is kept, continued and drawn."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from calibration.data import PROTOCOLS, load_dataset
from calibration.methods import make_method
from calibration.training import TrainingRun
from calibration.training_config import TrainingConfig
from sweeps.report.write import write_report
from tests.trained import train_sweep

SPEC = """\
name: along
datasets: [iris]
model: {name: mlp, widths: [4]}
methods: {standard: {lr: 0.1, weight_decay: 0}}
training: {epochs: 8, batch_size: full, reliability_snapshots: 4}
confirm_seeds: 1
calibrators: [identity]
"""


def run_of(snapshots: int) -> TrainingRun:
    dataset = load_dataset("iris", {})
    return TrainingRun(
        make_method("standard", {"lr": 0.05}),
        dataset.split(PROTOCOLS["honest"], 1, held_out=False),
        model="mlp",
        model_options={"widths": [4]},
        classes=3,
        config=TrainingConfig(epochs=10, evaluate_every=2, reliability_snapshots=snapshots),
        seed=1,
    )


def test_looks_are_spread_evenly_and_show_validation_data() -> None:
    run, plain = run_of(3), run_of(0)
    while not run.done:
        run.run_epoch()
        plain.run_epoch()
    kept = run.reliability()
    # After 10/3, 20/3 and 10 epochs, at the next look at validation data.
    assert kept["epoch"].tolist() == [4, 8, 10]
    assert kept["confidence"].shape == (3, len(run.validation.labels))
    errors = {row["epoch"]: row.get("validation/error") for row in run.curve}
    for epoch, correct in zip(kept["epoch"].tolist(), kept["correct"], strict=True):
        assert 1 - correct.double().mean().item() == pytest.approx(errors[epoch])
    # They change no number.
    assert torch.equal(run.state.parameters, plain.state.parameters)
    assert plain.reliability() == {}


def test_a_continued_training_keeps_its_looks() -> None:
    run, again = run_of(5), run_of(5)
    for _ in range(6):
        run.run_epoch()
    again.load_state_dict(run.state_dict())
    for each in (run, again):
        while not each.done:
            each.run_epoch()
    for name, values in run.reliability().items():
        assert torch.equal(again.reliability()[name], values)


def test_the_report_draws_them_and_they_are_part_of_the_key(tmp_path: Path) -> None:
    sweep = train_sweep(tmp_path, SPEC)
    (trial,) = sweep.records.confirmed("iris", "standard")
    plain = trial.config.training.model_copy(update={"reliability_snapshots": 0})
    assert trial.config.model_copy(update={"training": plain}).key() != trial.key
    write_report(sweep.records, sweep.store)
    figure = "figures/iris_standard-along-training.png"
    assert sweep.store.read_file("along", figure) is not None
