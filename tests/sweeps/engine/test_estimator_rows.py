"""Estimators as rows of a sweep: the same search, records, keys, checkpoints and export."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from calibration import calibrators
from sweeps.engine.cell import Cells, PlannedTrial
from sweeps.engine.dry_run import try_rows
from sweeps.engine.estimate import estimate
from sweeps.engine.trial import TrialRun
from sweeps.export.choice import choose
from sweeps.export.package import Wish, assemble
from sweeps.spec import LoadedSpec, SpecError, load_spec
from sweeps.spec.schema import Evaluation
from sweeps.store import Store, TrialRecord
from sweeps.sweep import Sweep
from tests.trained import train_sweep

MODULE = """
from calibration.learners.xgboost import XGBoost


class Broken(XGBoost):
    description = "raises in its third round"

    def fit(self, task):
        for number, scores in enumerate(super().fit(task)):
            if number == 2:
                raise LookupError("this booster has a bug")
            yield scores
"""
SPEC = """\
name: estimated
datasets: [{{name: table, path: {rows}, target: label}}]
model: {{name: mlp, widths: [8]}}
methods:
  standard: {{lr: 0.05, weight_decay: 0}}
  logistic_regression: {{C: {{loguniform: [0.1, 10]}}}}
  hgb: {{method: hist_gradient_boosting, rounds: 6, min_samples_leaf: 5}}
  xgboost: {{rounds: 6, max_depth: [2, 6], learning_rate: 0.3, min_child_weight: 1.0,
             reg_lambda: 1.0, colsample_bytree: 1.0, subsample: 1.0}}
  trees: {{method: "sklearn.tree:DecisionTreeClassifier", max_depth: {{integer: [1, 4]}}}}
  broken: {{method: "broken_booster:Broken", rounds: 5, max_depth: [2, 3]}}
training: {{epochs: 3, batch_size: full}}
search: {{trials: 2}}
confirm_seeds: 1
calibrators: [temperature]
"""


def rows(directory: Path) -> Path:
    generator = torch.Generator().manual_seed(0)
    lines = ["size,colour,label"]
    for i in range(160):
        label = "ab"[i % 2]
        size = float(torch.randn(1, generator=generator)) + 2.5 * (i % 2)
        colour = ("red", "green", "")[i % 3]
        lines.append(f"{'' if i % 17 == 0 else f'{size:.3f}'},{colour},{label}")
    path = directory / "rows.csv"
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    directory = tmp_path_factory.mktemp("estimated")
    (directory / "broken_booster.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(directory))
        return train_sweep(directory, SPEC.format(rows=rows(directory)))


def recorded(sweep: Sweep) -> list[tuple[PlannedTrial, TrialRecord]]:
    trials = sweep.plan.trials.values()
    return [(t, record) for t in trials if (record := sweep.store.record(t.key)) is not None]


def test_a_booster_that_raises_is_recorded_and_the_others_go_on(swept: Sweep) -> None:
    failed = [record for trial, record in recorded(swept) if trial.row == "broken"]
    assert len(failed) == 2  # nothing was left to confirm
    for record in failed:
        assert record.status == "failed"
        assert "LookupError: this booster has a bug" in record.reason
        assert [row["epoch"] for row in record.curve] == [1.0, 2.0]
    done = set(swept.analysis.leaderboard["row"])
    assert done == {"standard", "logistic_regression", "hgb", "xgboost", "trees"}


def test_the_search_begins_with_the_librarys_defaults(swept: Sweep) -> None:
    first = swept.spec.space("hgb").first
    assert first == ({"learning_rate": 0.1, "max_leaf_nodes": 31, "max_features": 1.0},)
    assert swept.spec.space("xgboost").first == ({"max_depth": 6},)
    assert swept.spec.space("trees").first == ()  # without a limit, which lies outside
    assert swept.spec.space("standard").first == ()


def test_a_record_says_what_concerns_an_estimator_and_no_more(swept: Sweep) -> None:
    for trial, record in recorded(swept):
        config, estimator = trial.config, trial.row != "standard"
        assert (config.model is None) == estimator
        if trial.row == "hgb":
            assert config.training.epochs == config.hyperparameters["rounds"] == 6
            assert len(record.curve) == 6
            nll = [row["validation/nll"] for row in record.curve]
            assert record.validation["nll"] == min(nll)
            assert "ece" in record.validation


@pytest.mark.parametrize("row", ["hgb", "xgboost", "logistic_regression", "trees"])
def test_an_export_predicts_what_the_record_says(swept: Sweep, row: str) -> None:
    chosen = choose(swept.records, swept.analysis, None, row, None)
    package = assemble(swept.loaded, swept.store, chosen, Wish())
    found = package.chosen
    arrays = swept.store.predictions(found.record)
    test = swept.loaded.datasets["rows"].test(0)
    logits = package.classifier.logits(test.inputs)
    assert torch.equal(logits, arrays["test_logits"])
    fitted = calibrators.fit(
        found.calibrator, arrays["validation_logits"], arrays["validation_labels"]
    )
    confidence = package.classifier.predict_raw(test.inputs).confidence
    assert torch.equal(confidence, fitted(logits).amax(1))
    assert "network.pt" not in package.model


def loaded(directory: Path, **changed: str) -> LoadedSpec:
    lines = SPEC.format(rows=rows(directory)).splitlines(keepends=True)
    text = "".join(line for line in lines if "broken" not in line)
    for old, new in changed.items():
        text = text.replace(old, new) if old in text else f"{text}{old}: {new}\n"
    (directory / "spec.yaml").write_text(text)
    return load_spec(directory / "spec.yaml")


def key(spec: LoadedSpec, row: str) -> str:
    return Cells(spec).config("rows", row, {}, 0, "search").key()


def test_settings_of_networks_are_in_no_estimators_key(tmp_path: Path) -> None:
    given = loaded(tmp_path)
    names = ("standard", "hgb", "logistic_regression")
    network, booster, linear = (key(given, name) for name in names)
    for old, new in {
        "epochs: 3": "epochs: 4",
        "batch_size: full": "batch_size: 16",
        "widths: [8]": "widths: [9]",
    }.items():
        other = loaded(tmp_path, **{old: new})
        assert key(other, "standard") != network
        assert key(other, "hgb") == booster
        assert key(other, "logistic_regression") == linear
    stopped = loaded(tmp_path, **{"epochs: 3,": "epochs: 3, stop_on: error,"})
    assert key(stopped, "hgb") != booster
    assert key(stopped, "logistic_regression") == linear
    threaded = loaded(tmp_path, **{"epochs: 3,": "epochs: 3, threads: 2,", "resources": "{cpu: 2}"})
    assert {key(threaded, name) for name in names}.isdisjoint({network, booster, linear})


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("rounds: 6, min", "training: {epochs: 5}, min", "'epochs' does not apply"),
        ("rounds: 6, min", "rounds: 0, min", "rounds"),
        ("C: ", "c: ", "unknown hyperparameter 'c'"),
        ("DecisionTreeClassifier", "DecisionTreeRegressor", "has no predict_proba"),
        ("max_depth: {integer: [1, 4]}", "max_depth: {integer: [-4, 4]}", "max_depth"),
    ],
)
def test_what_an_estimator_cannot_do_is_refused(
    tmp_path: Path, old: str, new: str, complaint: str
) -> None:
    with pytest.raises(SpecError, match=complaint):
        loaded(tmp_path, **{old: new})


def test_every_row_is_tried_and_its_time_estimated(tmp_path: Path) -> None:
    spec = loaded(tmp_path)
    tried = list(try_rows(spec))
    assert [each.failure for each in tried] == [""] * len(spec.spec.methods)
    assert all(math.isfinite(seconds) and seconds > 0 for seconds in estimate(spec).values())


KILLED = """
import time
from pathlib import Path
from sweeps.engine import trial as module
from sweeps.engine.cell import Cells, PlannedTrial
from sweeps.spec import load_spec
from sweeps.spec.schema import Evaluation
from sweeps.store import Store

original = module.TrialRun._save


def saved(self, run):
    self._save_again_after = 0.0
    original(self, run)
    if run.epoch == 7:
        print("saved", flush=True)
        time.sleep(3600)


module.TrialRun._save = saved
given = {"rounds": 40, "patience": 1000}
config = Cells(load_spec(Path("spec.yaml"))).config("rows", "hgb", given, 0, "search")
print(config.key(), flush=True)
module.TrialRun(config, Store("runs"), calibrators=[], evaluation=Evaluation()).advance(3600)
"""


@pytest.mark.slow
def test_a_killed_boosting_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    spec = loaded(tmp_path)
    config = Cells(spec).config("rows", "hgb", {"rounds": 40, "patience": 1000}, 0, "search")
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    try:
        assert child.stdout.readline().strip() == config.key()
        assert child.stdout.readline().strip() == "saved"
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    store, alone = Store(tmp_path / "runs"), Store(tmp_path / "alone")
    assert store.checkpoint(config.key())["epoch"] == 7
    for place in (store, alone):
        run = TrialRun(config, place, calibrators=[], evaluation=Evaluation())
        assert run.advance(3600)
    found, expected = store.record(config.key()), alone.record(config.key())
    assert found.status == "done"
    assert found.curve == expected.curve
    assert len(found.curve) == len(found.times) == 40
    for name, values in alone.predictions(expected).items():
        assert torch.equal(values, store.predictions(found)[name])
