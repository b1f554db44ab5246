"""How long a trial would train: what is counted, apart from how fast this machine is."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from calibration.training import TrainingRun
from sweeps.engine import estimate as module
from sweeps.engine.estimate import estimate
from sweeps.spec import LoadedSpec, load_spec


def loaded(tmp_path: Path, further: str) -> LoadedSpec:
    path = tmp_path / "sweep.yaml"
    path.write_text(f"name: small\n{further}\n")
    return load_spec(path)


@pytest.fixture
def made_up_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch takes a millisecond, or three in the second half; looking at a row 10 µs."""

    def timed(run: TrainingRun, moment: float) -> float:
        steps = run.method.window if run._full_batch else len(run.train.labels) / 100
        looked = len(run.validation.labels) if run.config.evaluate_every == 1 else 0
        return (3 if moment > 0.5 else 1) * steps * 0.001 + looked * 1e-5

    monkeypatch.setattr(module, "_timed", timed)


@pytest.mark.parametrize(
    ("training", "batches", "evaluations"),
    [
        ("{epochs: 40, batch_size: 100}", 40 * 28, 40),
        ("{epochs: 40, batch_size: 100, evaluate_every: 7}", 40 * 28, 6),
        ("{epochs: 40, batch_size: full, evaluate_every: 4, patience: 8}", 40, 10),
        ("{epochs: 40, batch_size: 5000}", 40, 40),
        ("{epochs: 1, batch_size: full}", 1, 1),
    ],
)
@pytest.mark.usefixtures("made_up_clock")
def test_every_batch_and_every_look_at_validation_data_counts(
    tmp_path: Path, training: str, batches: int, evaluations: int
) -> None:
    text = "datasets: [{name: blobs-1.7, points: 4000}]\nmethods: [standard]\n"
    found = estimate(loaded(tmp_path, f"{text}training: {training}"))
    # 2800 rows to train on, 1200 to validate; 35 % of all epochs lie at moments after the middle.
    expected = batches * (0.65 * 0.001 + 0.35 * 0.003) + evaluations * 1200 * 1e-5
    assert found == {("blobs-1.7", "standard"): pytest.approx(expected, rel=1e-6)}


@pytest.mark.usefixtures("made_up_clock")
def test_full_batches_are_as_many_as_the_epochs_whatever_the_window(tmp_path: Path) -> None:
    text = "datasets: [blobs-1.7]\nmethods: {bo4sc: {inner_steps: 8}}\n"
    training = "training: {epochs: 20, batch_size: full, evaluate_every: 20}"
    (found,) = estimate(loaded(tmp_path, text + training)).values()
    assert found == pytest.approx(20 * (0.65 * 0.001 + 0.35 * 0.003) + 300 * 1e-5, rel=1e-6)


def test_every_cell_has_a_time_that_grows_with_its_epochs(tmp_path: Path) -> None:
    text = "datasets: [blobs-1.7, digits]\nmethods: {standard: , bo4sc: , long: LONG}\n"
    text = text.replace("LONG", "{method: standard, training: {epochs: 5000}}")
    threads = torch.get_num_threads()
    found = estimate(loaded(tmp_path, text + "training: {epochs: 5}"))
    rows = ("standard", "bo4sc", "long")
    assert list(found) == [(dataset, row) for dataset in ("blobs-1.7", "digits") for row in rows]
    assert all(math.isfinite(seconds) and seconds > 0 for seconds in found.values())
    for dataset in ("blobs-1.7", "digits"):
        assert found[dataset, "long"] > 50 * found[dataset, "standard"]
    assert torch.get_num_threads() == threads
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.yaml"]


def test_a_row_that_cannot_be_run_has_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "failing.py").write_text(
        "from calibration.methods.standard import Standard\n"
        "class Failing(Standard):\n"
        "    def step(self, *arguments):\n        raise RuntimeError('no')\n"
    )
    text = "datasets: [iris]\nmethods: [standard, 'failing:Failing']\ntraining: {epochs: 2}"
    found = estimate(loaded(tmp_path, text))
    assert found["iris", "standard"] > 0
    assert math.isnan(found["iris", "failing:Failing"])
