"""Evaluations of stored predictions: killed on the way, and made anew by another version."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlflow.tracking import MlflowClient
from torch import Tensor

from calibration.metrics import METRICS, Metric
from calibration.metrics.predictions import Predictions
from calibration.metrics.top_label import ece_of
from sweeps.engine.plan import Plan
from sweeps.engine.trial import TrialRun
from sweeps.report.write import write_report
from sweeps.runner import sync_sweep
from sweeps.spec import ORACLE, load_spec
from sweeps.store import Store
from sweeps.sweep import open_sweep
from tests.trained import finish, train_sweep

SPEC = """\
name: evaluated
datasets: [blobs-1.7]
model: {name: mlp, widths: [8]}
methods: {standard: {lr: 0.1, weight_decay: 0}}
training: {epochs: 3, batch_size: full}
confirm_seeds: 1
calibrators: [temperature]
"""


class Killed(BaseException):
    """What no ``except Exception`` on the way catches."""


class Dying(Store):
    """Dies right after the evaluation of one calibrator has been written."""

    def write_evaluation(self, key: str, tag: str, name: str, *given: Any) -> None:
        super().write_evaluation(key, tag, name, *given)
        if name == "temperature":
            raise Killed


def test_killed_after_its_last_evaluation_a_trial_lacks_nothing(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(SPEC)
    plan = Plan(load_spec(tmp_path / "spec.yaml"), Store(tmp_path / "runs"))
    plan.replay()
    trial = plan.next()
    assert trial is not None
    about = {"calibrators": plan.spec.calibrator_names, "evaluation": plan.spec.evaluation}
    with pytest.raises(Killed):
        TrialRun(trial.config, Dying(tmp_path / "runs"), **about).advance(600)
    store = Store(tmp_path / "runs")
    assert TrialRun(trial.config, store, **about).advance(600)
    record = store.record(trial.key)
    found = set(store.evaluations(record, plan.spec.evaluation.tag))
    assert found == {"identity", "temperature", ORACLE}
    assert store.extra(record, "reliability.png") is not None


def test_a_metric_that_raises_costs_its_evaluations_and_not_the_trial(tmp_path: Path) -> None:
    def refuse(predictions: Predictions) -> Tensor:
        raise ArithmeticError("no such thing")

    METRICS.register("broken")(
        Metric(name="broken", title="broken", description="raises", compute=refuse)
    )
    try:
        sweep = train_sweep(tmp_path, SPEC)
        assert sweep.plan.finished
        found = sweep.records.confirmed("blobs-1.7", "standard")[0].evaluations
    finally:
        del METRICS._entries["broken"]
    assert found.keys() == {"identity", "temperature", ORACLE}
    assert {each.failed for each in found.values()} == {"ArithmeticError: no such thing"}
    # Without it, the next run makes the evaluations that failed.
    again = finish(tmp_path / "spec.yaml", sweep.store)
    assert again.results["ece"].notna().all()
    assert len(again.results) == 3


@pytest.fixture
def fixed_ece() -> Iterator[Metric]:
    """The ECE of a next version, which reads twice what it did."""
    old = METRICS["ece"]
    new = replace(old, version=old.version + 1, compute=lambda p, bins: 2 * ece_of(p, bins))
    METRICS._entries["ece"] = new
    yield new
    METRICS._entries["ece"] = old


def runs(uri: str) -> dict[str, Any]:
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("evaluated")
    found = client.search_runs([experiment.experiment_id])
    return {run.data.tags["calsweep.key"]: run for run in found}


@pytest.mark.slow
def test_a_fixed_metric_evaluates_again_what_is_stored_and_trains_nothing(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    sweep = train_sweep(tmp_path, SPEC)
    uri = sync_sweep(sweep.loaded, sweep.store).tracking
    before = sweep.results.set_index("calibrator")
    oracle = before.loc["identity"].set_index("row").loc[ORACLE]
    key, tag = before["key"].dropna().iloc[0], sweep.spec.evaluation.tag
    record = sweep.store.record(key)
    attempt = record.attempt
    evaluations = sweep.store.evaluations(record, tag)
    tracked = runs(uri)
    assert tracked[key].data.metrics["test/ece:temperature"] == before.loc["temperature", "ece"]

    request.getfixturevalue("fixed_ece")
    later = open_sweep("evaluated", sweep.store)
    assert later.plan.finished
    written = write_report(later.records, later.store)
    assert later.store.evaluations(record, tag) == evaluations
    assert written.analysis.outdated == len(written.analysis.results) == 3
    assert written.analysis.leaderboard["ece"].max() == before["ece"].max()
    assert "3 evaluations of 3 were made by another version" in written.summary
    page = sweep.store.read_file("evaluated", "report.html").decode()
    assert "nothing is trained again" in page

    again = finish(tmp_path / "spec.yaml", sweep.store)
    assert again.store.record(key) == record
    after = again.results.set_index("calibrator")
    assert after.loc["temperature", "ece"] == 2 * before.loc["temperature", "ece"]
    assert after.loc["temperature", "nll"] == before.loc["temperature", "nll"]
    assert after.loc["identity"].set_index("row").loc[ORACLE, "ece"] == 2 * oracle["ece"]
    assert not after["outdated"].any()
    home = sweep.store.local / "records" / key / attempt / "older-evaluations" / tag
    assert len(list(home.glob("temperature.*.json"))) == 1

    sync_sweep(again.loaded, again.store)
    then = runs(uri)
    assert {k: run.info.run_id for k, run in then.items()} == {
        k: run.info.run_id for k, run in tracked.items()
    }
    assert then[key].data.metrics["test/ece:temperature"] == after.loc["temperature", "ece"]
    assert then[key].data.metrics["test/nll"] == tracked[key].data.metrics["test/nll"]
