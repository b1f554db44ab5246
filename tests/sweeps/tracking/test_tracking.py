"""The tracking database, and the recorder: servers that go, processes that die, exact counts."""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow.tracking import MlflowClient

from sweeps.engine.cell import PlannedTrial
from sweeps.engine.plan import Plan
from sweeps.host.secrets import masked
from sweeps.store import Store, TrialRecord
from sweeps.tracking import TrackingError, recorder
from sweeps.tracking.mlflow import run_content
from sweeps.tracking.mlflow.backend import default_uri
from sweeps.tracking.mlflow.database import Database, create_database
from sweeps.tracking.mlflow.publisher import Publisher
from tests.tracked import (
    PUBLISHED_STEPS,
    SPEC,
    Server,
    body,
    empty_database,
    make_plan,
    recording,
    runs_of,
    server,
    steps,
    synced,
    tables,
    train,
    train_all,
)

# The children of a fork need not import MLflow again, which takes them longer than their work.
FORK = multiprocessing.get_context("fork")


def build(path: Path) -> multiprocessing.process.BaseProcess:
    process = FORK.Process(target=create_database, args=(f"sqlite:///{path}",))
    process.start()
    return process


def exit_code(process: multiprocessing.process.BaseProcess) -> int | None:
    process.join()
    return process.exitcode


def usable(path: Path) -> bool:
    client = MlflowClient(f"sqlite:///{path}")
    return client.get_experiment(client.create_experiment("x")).name == "x"


@pytest.mark.slow
def test_several_processes_build_one_usable_database(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    builders = [build(path) for _ in range(4)]
    assert [exit_code(builder) for builder in builders] == [0] * 4
    assert usable(path)
    assert [p.name for p in tmp_path.iterdir()] == ["mlflow.db"]


@pytest.mark.slow
def test_a_builder_killed_in_its_migrations_leaves_no_broken_database(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    builder = build(path)
    # The draft grows while its migrations run: kill it as soon as it has some of its tables.
    while not any(p.stat().st_size > 0 for p in tmp_path.glob(".mlflow-*/mlflow.db")):
        assert builder.is_alive()
        time.sleep(0.01)
    builder.kill()
    assert exit_code(builder) == -signal.SIGKILL
    assert not path.exists()
    assert exit_code(build(path)) == 0
    assert usable(path)
    assert [p.name for p in tmp_path.iterdir()] == ["mlflow.db"]


def test_the_database_lies_in_the_store_if_that_is_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert default_uri(Store("runs")) == f"sqlite:///{tmp_path.resolve()}/runs/mlflow.db"
    assert default_uri(Store("memory://x")) == f"sqlite:///{tmp_path.resolve()}/mlflow.db"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("GET http://me:s3cret@host:5000/api failed", "GET http://***@host:5000/api failed"),
        ("postgresql://me:p@s3cret@host/db", "postgresql://***@host/db"),
        ("password 's3cret' is wrong", "password '***' is wrong"),
        ("sqlite:////srv/mlflow.db", "sqlite:////srv/mlflow.db"),
    ],
)
def test_passwords_are_not_shown(text: str, shown: str) -> None:
    assert masked(text, "http://me:s3cret@host:5000") == shown


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("server")) as made:
        yield made


@pytest.fixture
def uri(tmp_path: Path) -> str:
    (tmp_path / "mlflow.db").write_bytes(empty_database())
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the waits: what is tested is their order."""
    for name in ("LIVE_SECONDS", "FIRST_WAIT", "LONGEST_WAIT"):
        monkeypatch.setattr(recorder, name, getattr(recorder, name) / 10)


def wait_until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def assert_exact(uri: str, trials: list[PlannedTrial], experiment: str = "s") -> None:
    """One finished run for every trial, in which every epoch stands once."""
    runs = runs_of(uri, experiment)
    assert runs.keys() == {experiment, *(trial.key for trial in trials)}
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    for trial in trials:
        run = runs[trial.key]
        for name in ("train/lr", "train/loss"):
            assert steps(uri, run, name) == PUBLISHED_STEPS
        for name in ("validation/nll", "validation/ece"):
            assert steps(uri, run, name) == [2, 4, 6]
        assert steps(uri, run, "selected/nll") == [0]
        assert steps(uri, run, "test/ece") == ([0] if trial.config.phase == "confirm" else [])


@pytest.mark.slow
def test_rows_written_directly_are_those_the_client_writes(
    tmp_path: Path, uri: str, running: Server
) -> None:
    """The same records published to a database and through a server leave the same tables."""
    assert Database.open(uri) is not None
    plan = make_plan(tmp_path)
    trials = train_all(plan)
    for place in (uri, running.uri):
        publisher = Publisher(place, plan, plan.store)
        for trial in trials:
            publisher.publish(trial)
        assert publisher.published == len(trials)
    direct, served = tables(tmp_path / "mlflow.db"), tables(running.database)
    assert len(direct["metrics"]) > 5 * 20
    for name in ("params", "metrics", "latest_metrics", "tags"):
        assert _timeless(direct[name]) == _timeless(served[name])
    # Where a run's files lie is the one thing that differs, and when the sweep began.
    for ours, theirs in zip(direct["runs"], served["runs"], strict=True):
        same = [a == b for a, b in zip(ours, theirs, strict=True)]
        assert same.count(False) <= (2 if "<s>" in ours else 1)


def _timeless(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return [row for row in rows if "calsweep.updated" not in row]


def test_a_database_of_another_schema_is_left_to_the_client(tmp_path: Path, uri: str) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "mlflow.db")) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'of tomorrow'")
        connection.commit()
    assert Database.open(uri) is None
    assert Database.open("http://localhost") is None


@pytest.mark.slow
def test_a_curve_of_which_a_part_arrived_is_completed(
    tmp_path: Path, running: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeps.tracking.mlflow.publisher.POINTS_PER_CALL", 6)
    plan = make_plan(tmp_path, text=SPEC.replace("name: s", "name: part"))
    trials = train_all(plan)
    publisher = Publisher(running.uri, plan, plan.store)
    send = publisher.client.log_batch
    for trial, allowed in zip(trials, range(5), strict=True):
        calls = iter(range(allowed))

        def limited(*arguments: Any, calls: Iterator[int] = calls, **named: Any) -> None:
            if next(calls, None) is None:
                raise ConnectionError
            send(*arguments, **named)

        monkeypatch.setattr(publisher.client, "log_batch", limited)
        with pytest.raises(ConnectionError):
            publisher.publish(trial)
    assert synced(running.uri, plan, "words") == 5
    assert_exact(running.uri, trials, "part")


@pytest.mark.slow
def test_a_server_that_was_away_has_everything_once(tmp_path: Path, running: Server) -> None:
    plan = make_plan(tmp_path, trials=8, text=SPEC.replace("name: s", "name: outage"))
    recorder = recording(running.uri, plan)
    trained: list[PlannedTrial] = []

    def advance(count: int) -> None:
        for _ in range(count):
            trial = plan.next()
            assert trial is not None
            recorder.started(trial)
            train(plan, trial)
            plan.complete(trial.key)
            recorder.submit(trial)
            trained.append(trial)

    advance(3)
    wait_until(lambda: recorder.backlog == 0)
    advance(1)
    running.kill()
    advance(4)
    wait_until(lambda: recorder.error and recorder.backlog >= 4)
    running.start()
    advance(2)
    assert plan.finished
    assert recorder.close("in words") == 0
    assert recorder.error == ""
    assert_exact(running.uri, trained, "outage")


def test_a_server_that_never_comes_costs_patience_and_no_record(tmp_path: Path, uri: str) -> None:
    plan = make_plan(tmp_path)
    nowhere = Server(tmp_path)
    away = nowhere.uri.replace("http://", "http://me:s3cret@")
    recorder = recording(away, plan)
    trials = train_all(plan)
    for trial in trials:
        recorder.submit(trial)
    assert recorder.close("words", patience=0.5) == len(trials)
    assert str(nowhere.port) in recorder.error
    assert "s3cret" not in recorder.error
    with pytest.raises(TrackingError, match=r"cannot publish to http://\*\*\*@") as caught:
        synced(away, plan, "words")
    assert "s3cret" not in str(caught.value)
    assert synced(uri, plan, "words") == len(trials)
    assert_exact(uri, trials)


def test_one_trial_that_is_refused_holds_up_no_other(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(tmp_path)
    refused = plan.next()
    assert refused is not None
    train(plan, refused)
    tags = run_content.outcome_tags

    def refuse(trial: PlannedTrial, outcome: TrialRecord) -> dict[str, str]:
        if trial.key == refused.key:
            raise KeyError("of a kind unheard of")
        return tags(trial, outcome)

    monkeypatch.setattr(run_content, "outcome_tags", refuse)
    others = []
    while (trial := plan.next()) is not None:
        train(plan, trial)
        others.append(trial)
    recorder = recording(uri, plan)
    for trial in (refused, *others):
        recorder.submit(trial)
    assert recorder.close("words") == 1
    assert "unheard of" in recorder.error
    runs = runs_of(uri)
    assert runs.keys() == {"s", *(trial.key for trial in others)}
    assert {runs[trial.key].info.status for trial in others} == {"FINISHED"}


def test_curves_are_shown_while_they_grow(tmp_path: Path, uri: str) -> None:
    plan = make_plan(tmp_path)
    trial = plan.next()
    assert trial is not None
    recorder = recording(uri, plan)
    recorder.started(trial)
    for epochs, shown in ((3, [2]), (5, [2, 4])):
        plan.store.write_live(trial.key, body(epochs))
        wait_until(
            lambda shown=shown: (
                trial.key in (runs := runs_of(uri))
                and steps(uri, runs[trial.key], "validation/ece") == shown
            )
        )
    assert runs_of(uri)[trial.key].info.status == "RUNNING"
    train(plan, trial)
    plan.complete(trial.key)
    recorder.submit(trial)
    trials = [trial, *train_all(plan)]
    for other in trials[1:]:
        recorder.submit(other)
    assert recorder.close("words") == 0
    assert_exact(uri, trials)


def test_an_interrupted_sweep_leaves_nothing_running(tmp_path: Path, uri: str) -> None:
    plan = make_plan(tmp_path)
    done, stopped = plan.next(), plan.next()
    assert done is not None
    assert stopped is not None
    recorder = recording(uri, plan)
    for trial in (done, stopped):
        recorder.started(trial)
        plan.store.write_live(trial.key, body(3))
    wait_until(lambda: runs_of(uri).keys() == {"s", done.key, stopped.key})
    train(plan, done)
    recorder.submit(done)
    assert recorder.close(None) == 0
    found = {key: run.info.status for key, run in runs_of(uri).items()}
    assert found == {"s": "KILLED", done.key: "FINISHED", stopped.key: "KILLED"}


def _publish(uri: str, plan: Plan, order: list[PlannedTrial]) -> None:
    """Publish a few trials live first, others whole; to be killed anywhere."""
    publisher = Publisher(uri, plan, plan.store)
    while True:
        for number, trial in enumerate(order):
            if number % 2:
                publisher.publish_live(trial)
            publisher.publish(trial)
        publisher.publish_sweep("words")


@pytest.mark.slow
@pytest.mark.parametrize("through_client", [False, True])
def test_a_publisher_killed_anywhere_leaves_exact_counts(
    tmp_path: Path, uri: str, through_client: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if through_client:
        monkeypatch.setattr("sweeps.tracking.mlflow.publisher.Database.open", lambda uri: None)
    plan = make_plan(tmp_path, trials=20)
    trials = train_all(plan)
    for trial in trials:
        # As if a worker on another machine were still writing: what it says is the same.
        began = 1_700_000_000.0 + 100 * trial.number
        plan.store.write_live(trial.key, body(5, began=began))
    dice = random.Random(7)
    for _ in range(6):
        order = dice.sample(trials, len(trials))
        process = FORK.Process(target=_publish, args=(uri, plan, order))
        process.start()
        time.sleep(dice.uniform(0.05, 0.6))
        process.kill()
        assert exit_code(process) == -signal.SIGKILL
    fresh = make_plan(tmp_path, trials=20)
    synced(uri, fresh, "words")
    assert_exact(uri, trials)
