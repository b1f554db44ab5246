"""What MLflow says of a sweep: everything, once, and the same again after any interruption."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mlflow.entities import Metric, ViewType
from mlflow.tracking import MlflowClient

from sweeps.engine.cell import PlannedTrial
from sweeps.engine.plan import Plan
from sweeps.engine.trial import TrialRun
from sweeps.spec import load_spec
from sweeps.store import Store, TrialRecord
from sweeps.tracking.mlflow.publisher import Publisher
from tests.outcomes import evaluation as evaluated
from tests.outcomes import outcome
from tests.tracked import (
    BEGAN,
    EPOCHS,
    PUBLISHED_STEPS,
    SPEC,
    body,
    empty_database,
    evaluation,
    make_plan,
    record,
    runs_of,
    steps,
    synced,
    tables,
    train,
    train_all,
)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    (tmp_path / "mlflow.db").write_bytes(empty_database())
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


def test_a_run_can_be_completed_under_another_name_of_its_row(tmp_path: Path, uri: str) -> None:
    """A row renamed in the spec keeps its records; later evaluations join the runs they belong to.

    MLflow refuses to change a parameter, and the run would stay unpublished for ever.
    """
    store = Store(tmp_path / "my runs")
    spec = tmp_path / "spec.yaml"
    keys = set()
    both = ["identity", "temperature"]
    for row, names in (("old name", ["identity"]), ("other name", both), ("new name", both)):
        spec.write_text(
            "name: s\ndatasets: [blobs-1.7]\nmodel: {name: mlp, widths: [4]}\n"
            f"methods:\n  {row}: {{method: standard, lr: 0.1, weight_decay: 0.0}}\n"
            "training: {epochs: 2, batch_size: full}\n"
            "calibrators: [temperature]\nconfirm_seeds: 1\n"
        )
        plan = Plan(load_spec(spec), store)
        (trial,) = plan.confirmed("blobs-1.7", row)
        keys.add(trial.key)
        evaluation = plan.spec.evaluation
        TrialRun(trial.config, store, calibrators=names, evaluation=evaluation).advance(60)
        publisher = Publisher(uri, plan, store)
        publisher.publish(trial)
    assert len(keys) == 1
    run = runs_of(uri)[keys.pop()]
    assert run.info.status == "FINISHED"
    assert {"test/ece", "test/ece:temperature"} <= run.data.metrics.keys()
    assert run.data.params["training.stop_on"] == "nll"
    assert run.data.tags["calsweep.row"] == "new name"
    assert run.info.run_name == "new name blobs-1.7 seed 1"
    assert steps(uri, run) == [1, 2]
    assert steps(uri, run, "test/ece") == [0]
    artifacts = {file.path for file in publisher.client.list_artifacts(run.info.run_id)}
    assert artifacts == {"record.json", "predictions.parquet", "reliability.png"}


def test_a_run_says_what_the_record_says(tmp_path: Path, uri: str) -> None:
    plan = make_plan(tmp_path)
    trials = train_all(plan)
    publisher = Publisher(uri, plan, plan.store)
    for trial in trials:
        publisher.publish(trial)
    runs = runs_of(uri)
    parent = runs.pop("s")
    assert runs.keys() == {trial.key for trial in trials}
    for trial in trials:
        run, found = runs[trial.key], plan.store.record(trial.key)
        assert found is not None
        began = BEGAN + 100 * trial.number
        assert (run.info.start_time, run.info.end_time) == (began * 1000, (began + EPOCHS) * 1000)
        history = publisher.client.get_metric_history(run.info.run_id, "validation/nll")
        assert [(m.step, m.value, m.timestamp) for m in history] == [
            (epoch, 2 / epoch, (began + epoch) * 1000) for epoch in (2, 4, 6)
        ]
        assert steps(uri, run, "train/lr") == PUBLISHED_STEPS
        assert run.data.metrics["train_seconds"] == EPOCHS
        assert run.data.metrics["selected/nll"] == 0.25
        assert run.data.params["lr"] == str(trial.config.hyperparameters["lr"])
        tags = run.data.tags
        assert tags["mlflow.parentRunId"] == parent.info.run_id
        assert tags["mlflow.source.git.commit"] == "0123abc"
        said = {
            "sweep": "s",
            "dataset": "blobs-1.7",
            "method": "standard",
            "row": "standard",
            "phase": trial.config.phase,
            "status": "done",
            "fingerprint": trial.config.fingerprint,
            "lineage": "a",
        }
        assert {f"calsweep.{name}": value for name, value in said.items()}.items() <= tags.items()
        content = publisher.client.download_artifacts(run.info.run_id, "record.json", str(tmp_path))
        assert TrialRecord.model_validate_json(Path(content).read_text()) == found


def test_confirmed_runs_have_the_metrics_of_every_map(tmp_path: Path, uri: str) -> None:
    plan = make_plan(tmp_path)
    train_all(plan)
    assert synced(uri, plan, "words") == 5
    runs = runs_of(uri)
    for trial in plan.confirmed("blobs-1.7", "standard"):
        metrics = runs[trial.key].data.metrics
        for suffix in ("", ":temperature"):
            expected = {"ece": 0.5, "nll": 0.75, "ece_low": 0.25, "ece_high": 1.0}
            expected |= {"floor": 0.01, "floor_q95": 0.02, "large_ece": 0.4375}
            assert {n: metrics[f"test/{n}{suffix}"] for n in expected} == expected
            assert metrics[f"selected/ece{suffix}"] == 0.375
    searched = runs[plan.search_trial(next(iter(plan.cells.values())), 0).key]
    assert not any(name.startswith("test/") for name in searched.data.metrics)


def test_the_parent_has_the_sweeps_files(tmp_path: Path, uri: str) -> None:
    plan = make_plan(tmp_path)
    train_all(plan)
    for name in ("spec.yaml", "leaderboard.csv", "figures/x.png"):
        plan.store.write_file("s", name, name.encode())
    synced(uri, plan, "in words")
    parent = runs_of(uri)["s"]
    assert parent.info.status == "FINISHED"
    assert parent.data.tags["mlflow.note.content"] == "in words"
    client = MlflowClient(uri)
    for name in ("spec.yaml", "leaderboard.csv", "figures/x.png"):
        path = client.download_artifacts(parent.info.run_id, name, str(tmp_path))
        assert Path(path).read_text() == name
    path = client.download_artifacts(parent.info.run_id, "environment.json", str(tmp_path))
    about = json.loads(Path(path).read_text())
    fingerprint = plan.loaded.datasets["blobs-1.7"].fingerprint
    assert about["fingerprints"] == {"blobs-1.7": fingerprint}
    assert {"python", "git", "torch"} <= about.keys()


def test_every_end_of_a_trial_has_its_status(tmp_path: Path, uri: str) -> None:
    plan = make_plan(tmp_path)
    ends = {"done": "FINISHED", "failed": "FAILED", "pruned": "KILLED"}
    trials = {}
    for status in ends:
        trial = plan.next()
        assert trial is not None
        train(plan, trial, status)
        plan.complete(trial.key)
        trials[status] = trial
    while (trial := plan.next()) is not None:
        train(plan, trial)
        plan.complete(trial.key)
    synced(uri, plan, "")
    runs = runs_of(uri)
    for status, expected in ends.items():
        run = runs[trials[status].key]
        assert run.info.status == expected
        assert run.data.tags["calsweep.status"] == status
        reason = run.data.tags.get("calsweep.reason")
        assert reason == (None if status == "done" else f"it {status}")
    assert runs["s"].info.status == "FAILED"
    before = tables(tmp_path / "mlflow.db")
    assert synced(uri, plan, "") == 0
    after = tables(tmp_path / "mlflow.db")
    for table in ("params", "metrics", "latest_metrics"):
        assert after[table] == before[table]
    assert len(after["runs"]) == len(before["runs"])


def test_mlflow_drops_exact_repetitions(uri: str) -> None:
    """What the recorder's exactness rests on where an answer is lost: old rows among new ones."""
    client = MlflowClient(uri)
    run = client.create_run(client.create_experiment("x"))
    rows = [Metric(name, 0.1 * s, 1000 + s, s) for s in range(6) for name in ("a", "b")]
    for batch in (rows[:6], rows[:6], rows[3:], rows):
        client.log_batch(run.info.run_id, metrics=batch)
    for name in ("a", "b"):
        assert steps(uri, run, name) == list(range(6))


def test_a_training_begun_anew_gets_a_new_run(tmp_path: Path, uri: str) -> None:
    plan = make_plan(tmp_path)
    trial = plan.next()
    assert trial is not None
    train(plan, trial, "failed", epochs=4)
    Publisher(uri, plan, plan.store).publish(trial)
    old = runs_of(uri)[trial.key]
    plan.store.retire(plan.store.record(trial.key))
    train(plan, trial, lineage="b", began=BEGAN + 50)
    Publisher(uri, plan, plan.store).publish(trial)
    new = runs_of(uri)[trial.key]
    assert new.info.run_id != old.info.run_id
    assert new.info.status == "FINISHED"
    assert steps(uri, new) == PUBLISHED_STEPS
    client = MlflowClient(uri)
    trash = client.search_runs([old.info.experiment_id], run_view_type=ViewType.DELETED_ONLY)
    assert [run.info.run_id for run in trash] == [old.info.run_id]


def test_a_failure_repeated_before_the_first_epoch_is_told_anew(tmp_path: Path, uri: str) -> None:
    plan = make_plan(tmp_path)
    trial = plan.next()
    assert trial is not None
    for reason in ("no memory", "no network"):
        plan.store.file_record(trial.key, outcome("failed", reason=reason))
        Publisher(uri, plan, plan.store).publish(trial)
        plan.store.retire(plan.store.record(trial.key))
    run = runs_of(uri)[trial.key]
    assert run.data.tags["calsweep.reason"] == "no network"


@pytest.mark.parametrize("same_process", [True, False])
def test_a_live_curve_grows_and_ends_with_every_epoch_once(
    tmp_path: Path, uri: str, same_process: bool
) -> None:
    plan = make_plan(tmp_path)
    trial = plan.next()
    assert trial is not None
    publisher = Publisher(uri, plan, plan.store)
    publisher.publish_live(trial)
    assert trial.key not in runs_of(uri)
    for epochs, expected in ((3, [2]), (3, [2]), (5, [2, 4])):
        plan.store.write_live(trial.key, body(epochs))
        publisher = publisher if same_process else Publisher(uri, plan, plan.store)
        publisher.publish_live(trial)
        run = runs_of(uri)[trial.key]
        assert run.info.status == "RUNNING"
        assert run.data.params["method"] == "standard"
        assert steps(uri, run) == steps(uri, run, "validation/ece") == expected
    train(plan, trial)
    publisher = publisher if same_process else Publisher(uri, plan, plan.store)
    publisher.publish(trial)
    live, run = run, runs_of(uri)[trial.key]
    assert run.info.run_id == live.info.run_id
    assert (run.info.status, run.info.end_time) == ("FINISHED", (BEGAN + EPOCHS) * 1000)
    assert steps(uri, run) == PUBLISHED_STEPS
    assert steps(uri, run, "validation/ece") == [2, 4, 6]


@pytest.mark.parametrize("same_process", [True, False])
def test_epochs_trained_twice_by_an_orphan_are_shown_once(
    tmp_path: Path, uri: str, same_process: bool
) -> None:
    """Two workers that continue one checkpoint agree on everything but the time of day."""
    plan = make_plan(tmp_path)
    trial = plan.next()
    assert trial is not None
    plan.store.write_live(trial.key, body(5))
    publisher = Publisher(uri, plan, plan.store)
    publisher.publish_live(trial)
    train(plan, trial, began=BEGAN + 0.5)
    publisher = publisher if same_process else Publisher(uri, plan, plan.store)
    publisher.publish(trial)
    plan.store.write_live(trial.key, body(6))
    publisher.publish_live(trial)
    run = runs_of(uri)[trial.key]
    assert run.info.status == "FINISHED"
    assert steps(uri, run) == PUBLISHED_STEPS


def test_an_interrupted_sweep_has_no_running_run_and_goes_on(tmp_path: Path, uri: str) -> None:
    plan = make_plan(tmp_path)
    ended, stopped = plan.next(), plan.next()
    assert ended is not None
    assert stopped is not None
    publisher = Publisher(uri, plan, plan.store)
    for trial in (ended, stopped):
        plan.store.write_live(trial.key, body(3))
        publisher.publish_live(trial)
    publisher.interrupt()
    assert {run.info.status for run in runs_of(uri).values()} == {"KILLED"}
    train(plan, ended)
    plan.store.write_live(stopped.key, body(5))
    publisher = Publisher(uri, plan, plan.store)
    publisher.publish(ended)
    publisher.publish_live(stopped)
    found = {key: run.info.status for key, run in runs_of(uri).items()}
    assert found == {"s": "RUNNING", ended.key: "FINISHED", stopped.key: "RUNNING"}


def test_a_run_stamped_and_then_killed_is_brought_to_its_end(tmp_path: Path, uri: str) -> None:
    """Its last request but one arrived, the one that ends it did not, and the sweep was stopped."""
    plan = make_plan(tmp_path)
    trial = plan.next()
    assert trial is not None
    train(plan, trial)
    Publisher(uri, plan, plan.store).publish(trial)
    run_id = runs_of(uri)[trial.key].info.run_id
    for status in ("RUNNING", "KILLED"):
        MlflowClient(uri).update_run(run_id, status=status)
        Publisher(uri, plan, plan.store).publish(trial)
        run = runs_of(uri)[trial.key]
        assert (run.info.run_id, run.info.status) == (run_id, "FINISHED")
        assert steps(uri, run) == PUBLISHED_STEPS
        assert steps(uri, run, "selected/nll") == [0]


def test_a_run_made_twice_by_a_lost_answer_is_left_once(tmp_path: Path, uri: str) -> None:
    plan = make_plan(tmp_path)
    trial = plan.next()
    assert trial is not None
    train(plan, trial)
    publisher = Publisher(uri, plan, plan.store)
    publisher.publish(trial)
    tags = {"calsweep.sweep": "s", "calsweep.key": trial.key, "calsweep.lineage": "a"}
    publisher.client.create_run(publisher.experiment, tags=tags)
    Publisher(uri, plan, plan.store).publish(trial)
    assert runs_of(uri)[trial.key].info.status == "FINISHED"


def test_other_bins_are_published_as_other_numbers(tmp_path: Path, uri: str) -> None:
    train_all(make_plan(tmp_path))
    plan = make_plan(tmp_path)
    assert synced(uri, plan, "") == 5
    finer = make_plan(tmp_path, text=SPEC + "bins: 30\n")
    for trial in finer.confirmed("blobs-1.7", "standard"):
        for name in finer.spec.calibrator_names:
            finer.store.write_evaluation(
                trial.key, "30-bins", name, evaluated(name, **evaluation(0.25))
            )
    finer = make_plan(tmp_path, text=SPEC + "bins: 30\n")
    assert synced(uri, finer, "") == 2
    runs = runs_of(uri)
    for trial in finer.confirmed("blobs-1.7", "standard"):
        assert runs[trial.key].data.metrics["test/ece"] == 0.25
        assert steps(uri, runs[trial.key], "test/ece") == [0]
        assert steps(uri, runs[trial.key]) == PUBLISHED_STEPS


def test_sweeps_that_share_an_experiment_keep_their_runs_apart(tmp_path: Path, uri: str) -> None:
    found: dict[str, list[PlannedTrial]] = {}
    for name in ("one", "two"):
        text = SPEC.replace("name: s", f"name: {name}") + "tracking: {experiment: both / of them}\n"
        plan = make_plan(tmp_path, text=text)
        train_all(plan)
        found[name] = list(plan.trials.values())
        assert synced(uri, plan, "") == 5
    assert {e.key for e in found["one"]} == {e.key for e in found["two"]}
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("both / of them")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    names = sorted((r.data.tags["calsweep.sweep"], r.data.tags["calsweep.key"]) for r in runs)
    wanted = [(n, k) for n in found for k in {n, *(e.key for e in found[n])}]
    assert names == sorted(wanted)


def test_an_experiment_in_the_trash_is_taken_out(tmp_path: Path, uri: str) -> None:
    plan = make_plan(tmp_path)
    trial = train_all(plan)[0]
    client = MlflowClient(uri)
    client.delete_experiment(client.create_experiment("s", (tmp_path / "files").as_uri()))
    Publisher(uri, plan, plan.store).publish(trial)
    assert runs_of(uri).keys() == {"s", trial.key}


def test_numbers_that_are_none_are_left_out(tmp_path: Path, uri: str) -> None:
    plan = make_plan(tmp_path)
    trial = plan.next()
    assert trial is not None
    found = record(trial, "failed")
    found["curve"][-1] |= {"train/loss": float("nan"), "validation/nll": float("inf")}
    plan.store.file_record(trial.key, outcome(**found))
    Publisher(uri, plan, plan.store).publish(trial)
    run = runs_of(uri)[trial.key]
    assert steps(uri, run) == [2, 4, 6]
    assert steps(uri, run, "train/lr") == PUBLISHED_STEPS
