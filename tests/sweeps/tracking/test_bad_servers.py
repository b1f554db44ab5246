"""MLflow servers that are slow, hang, lie or refuse, and drivers killed while they publish."""

from __future__ import annotations

import multiprocessing
import signal
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from sweeps.cli.main import main
from sweeps.engine.cell import PlannedTrial
from sweeps.engine.plan import Plan
from sweeps.errors import UserError
from sweeps.tracking import TrackingError, recorder
from sweeps.tracking.mlflow.access import check_access
from sweeps.tracking.mlflow.publisher import Publisher
from tests.sweeps.tracking.between import Between, Mood
from tests.sweeps.tracking.test_tracking import assert_exact
from tests.tracked import SPEC, Server, make_plan, recording, server, synced, train, train_all
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

# Forked, a process would wait for ever for an import lock that a thread of ours held.
SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("server")) as made:
        yield made


@pytest.fixture
def between(real: Server) -> Iterator[Between]:
    made = Between(real.port)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the waits: what is tested is their order."""
    for name in ("LIVE_SECONDS", "FIRST_WAIT", "LONGEST_WAIT"):
        monkeypatch.setattr(recorder, name, getattr(recorder, name) / 10)


def plan_called(name: str, directory: Path) -> Plan:
    return make_plan(directory, trials=2, text=SPEC.replace("name: s", f"name: {name}"))


def train_next(plan: Plan) -> PlannedTrial:
    trial = plan.next()
    assert trial is not None
    train(plan, trial)
    plan.complete(trial.key)
    return trial


@pytest.mark.parametrize(
    ("mood", "words"),
    [
        ("page", "web page, not MLflow"),
        ("hang", "Read timed out"),
        ("refuse", "401"),
    ],
)
def test_a_server_that_turns_in_mid_sweep_costs_no_record_and_sync_brings_the_rest(
    mood: Mood, words: str, between: Between, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    plan = plan_called(mood, tmp_path)
    publishing = recording(between.uri, plan)
    first = train_next(plan)
    publishing.submit(first)
    wait_for(lambda: publishing.backlog == 0)
    between.turn(mood)
    rest = train_all(plan)
    assert len(rest) == 3
    for trial in rest:
        publishing.started(trial)
        publishing.submit(trial)
    assert publishing.close("words", patience=0.5) == len(rest)
    assert words in publishing.error
    assert "<" not in publishing.error
    assert "\n" not in publishing.error
    with pytest.raises(TrackingError, match="sync again") as caught:
        synced(between.uri, plan, "words")
    assert len(str(caught.value)) < 600
    between.turn("fair")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
    fresh = plan_called(mood, tmp_path)
    assert synced(between.uri, fresh, "words") == len(rest)
    assert synced(between.uri, fresh, "words") == 0
    assert_exact(between.uri, [first, *rest], mood)


def test_a_slow_server_gets_everything(between: Between, tmp_path: Path) -> None:
    plan = plan_called("slow", tmp_path)
    between.turn("slow")
    publishing = recording(between.uri, plan)
    trials = train_all(plan)
    for trial in trials:
        publishing.submit(trial)
    assert publishing.close("words", patience=300.0) == 0
    assert publishing.error == ""
    assert_exact(between.uri, trials, "slow")


def test_every_answer_is_a_sign_of_life(between: Between, tmp_path: Path) -> None:
    """However much there is to bring: nothing takes many requests between two signs."""
    plan = plan_called("signs", tmp_path)
    trials = train_all(plan)
    for number in range(9):
        plan.store.write_file("signs", f"figures/{number}.svg", b"<svg/>")
    signs = [0]
    publisher = Publisher(
        between.uri, plan, plan.store, answered=lambda: signs.append(between.asked)
    )
    for trial in trials:
        publisher.publish(trial)
    publisher.publish_sweep("words")
    assert between.asked > 40
    assert max(after - before for before, after in pairwise(signs)) <= 3


def test_a_call_that_never_returns_does_not_hold_the_driver(
    between: Between, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "STUCK_SECONDS", 0.5)
    plan = plan_called("stuck", tmp_path)
    between.turn("drip")
    publishing = recording(between.uri, plan)
    assert between.struck.wait(600)
    trials = train_all(plan)
    for trial in trials:
        publishing.submit(trial)
    assert publishing.close("words", patience=0.5) == len(trials)
    assert publishing.error == f"{between.uri} did not answer in time"


def _publish(uri: str, name: str, directory: Path, scratch: Path) -> None:
    tempfile.tempdir = str(scratch)
    plan = plan_called(name, directory)
    publisher = Publisher(uri, plan, plan.store)
    for trial in list(plan.trials.values()):
        publisher.publish(trial)


@pytest.mark.parametrize("doing", ["/log-batch", "/mlflow-artifacts/"])
def test_a_driver_killed_in_the_middle_of_a_run_leaves_exact_counts_and_no_files(
    doing: str, between: Between, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is there: without its metrics, or without its files."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))  # the second attempt's, too
    name = doing.strip("/").replace("/", "-")
    plan = plan_called(name, tmp_path)
    trials = train_all(plan)
    between.turn("hang", doing)
    process = SPAWN.Process(target=_publish, args=(between.uri, name, tmp_path, scratch))
    process.start()
    assert between.struck.wait(600)
    assert len(list(scratch.iterdir())) == (doing == "/mlflow-artifacts/")
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    between.turn("fair")
    fresh = plan_called(name, tmp_path)
    assert synced(between.uri, fresh, "words") == len(trials)
    assert_exact(between.uri, trials, name)
    assert list(scratch.iterdir()) == []


def test_what_is_no_mlflow_server_is_refused_before_the_work(
    between: Between, capsys: pytest.CaptureFixture[str]
) -> None:
    check_access(between.uri, "of tomorrow")
    check_access(between.uri)
    between.turn("page")
    for experiment in ("mine", None):
        with pytest.raises(UserError, match=r"not an MLflow server: it answers text/html"):
            check_access(between.uri, experiment)
    assert main(["ui", "--tracking", between.uri]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "not an MLflow server" in said


def test_a_server_in_trouble_is_away(between: Between, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweeps.tracking.mlflow.access.ANSWER_SECONDS", 0.5)
    for mood in ("hang", "drip"):
        between.turn(mood)
        check_access(between.uri, "mine")
        assert between.struck.is_set()
    between.turn("fair")
    between.behind = 1  # nobody is there: the connection ends without an answer
    check_access(between.uri, "mine")
