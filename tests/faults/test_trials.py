"""Trials that raise, diverge, run out of memory, die or hang: recorded, and only those."""

from __future__ import annotations

import pytest

from sweeps.store import TrialRecord
from tests.faults.kit import Scene

pytestmark = pytest.mark.slow

SPEC = """\
datasets: [blobs-1.7]
model: {name: mlp, widths: [8]}
methods:
  well: {method: standard, lr: [0.01, 0.1], weight_decay: 0}
  paced:
    method: "paced:Paced"
    lr: 0.05
    weight_decay: 0
    mode: [fine, raise, nan, memory, die, hang]
  crowd: {method: "paced:Paced", lr: 0.06, weight_decay: 0, mode: die, at: [1.0, 0.5, 0.99]}
training: {epochs: 10, batch_size: full, evaluate_every: 5}
search: {sampler: grid}
confirm_seeds: 1
calibrators: []
retries: 1
cohort: 2
time_limit: 20s
"""
REASONS = {
    "raise": "LookupError: this method has a bug",
    "nan": "not a number",
    "memory": "allocate",
    "die": "died 2 times",
    "hang": "time limit of 20 s",
}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    scene = Scene(tmp_path_factory.mktemp("trials"), SPEC, database=True)
    done = scene.run()
    scene.out, scene.err, scene.code = done.stdout, done.stderr, done.returncode
    return scene


def modes(scene: Scene) -> dict[str, TrialRecord]:
    return {
        record.config["hyperparameters"]["mode"]: record
        for record in scene.records().values()
        if record.config["method"] == "paced:Paced"
        and record.config["phase"] == "search"
        and record.config["hyperparameters"]["lr"] == 0.05
    }


def test_each_failure_is_recorded_with_its_reason(swept: Scene) -> None:
    found = modes(swept)
    assert {mode: record.status for mode, record in found.items()} == {
        "fine": "done"
    } | dict.fromkeys(REASONS, "failed")
    assert {m: r for m, r in REASONS.items() if r not in found[m].reason} == {}


def test_who_dies_in_a_cohort_dies_alone(swept: Scene) -> None:
    """Its process took another trial along, which neither fails nor is charged for it."""
    crowd = {
        record.config["hyperparameters"]["at"]: record
        for record in swept.records().values()
        if record.config["hyperparameters"]["lr"] == 0.06 and record.config["phase"] == "search"
    }
    assert {at: record.status for at, record in crowd.items()} == {
        1.0: "done",
        0.5: "failed",
        0.99: "done",
    }
    assert "died 2 times" in crowd[0.5].reason


def test_the_others_are_unaffected_and_the_exit_code_says_so(swept: Scene) -> None:
    assert swept.code == 1
    assert "6 failed" in swept.out
    assert "LookupError: this method has a bug" in swept.out
    assert "Traceback" not in swept.out + swept.err
    well = [r for r in swept.records().values() if r.config["method"] == "standard"]
    assert [r.status for r in well] == ["done"] * 3
    # The one that worked was chosen and confirmed.
    assert set(swept.leaderboard()["row"]) >= {"well", "paced"}


def test_mlflow_says_the_same(swept: Scene) -> None:
    records = swept.records()
    for run in swept.trials():
        record = records[run.data.tags["calsweep.key"]]
        assert run.info.status == {"done": "FINISHED", "failed": "FAILED"}[record.status]
        if record.status == "failed":
            assert record.reason[:200] in run.data.tags["calsweep.reason"]
    assert len(swept.trials()) == len(records)
    (parent,) = (run for run in swept.runs() if "mlflow.parentRunId" not in run.data.tags)
    assert parent.info.status == "FAILED"


def test_failed_trials_and_only_those_are_tried_again_on_request(swept: Scene) -> None:
    before = swept.attempts()
    # Mended: the method behaves from now on.
    module = swept.directory / "paced.py"
    text = module.read_text().replace("mode):\n", "mode):\n        return\n")
    module.write_text(text.replace('hyperparameters.mode == "nan"', "False"))
    failed = {key for key, record in swept.records().items() if record.status == "failed"}
    repaired = swept.run("--retry-failed")
    assert repaired.returncode == 0, repaired.stdout + repaired.stderr
    after = swept.attempts()
    assert {key for key in before if after.get(key) != before[key]} == failed
    assert all(record.status == "done" for record in swept.records().values())
    swept.assert_exact(len(after), [5, 10], {"FINISHED"})
