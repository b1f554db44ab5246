"""What a process that was killed leaves behind of its tracking: nothing, after the next one."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from sweeps.tracking.mlflow.database import create_database
from sweeps.tracking.mlflow.publisher import Publisher
from sweeps.tracking.mlflow.server import MlflowServer, ServerError
from tests.ports import free_port
from tests.sweeps.tracking.test_tracking import FORK, assert_exact, build, exit_code
from tests.tracked import empty_database, make_plan, runs_of, synced, train_all
from tests.waiting import wait_for, wait_until_gone


@pytest.fixture
def uri(tmp_path: Path) -> str:
    (tmp_path / "mlflow.db").write_bytes(empty_database())
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


def test_a_live_builders_draft_is_left_alone_and_a_dead_ones_goes(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    slow = build(path)
    while not (drafts := list(tmp_path.glob(".mlflow-*/mlflow.db"))):
        assert slow.is_alive()
        time.sleep(0.01)
    assert slow.pid is not None
    os.kill(slow.pid, signal.SIGSTOP)
    try:
        path.write_bytes(empty_database())  # as another builder would, who was quicker
        create_database(f"sqlite:///{path}")
        assert drafts[0].exists()
    finally:
        slow.kill()
    assert exit_code(slow) == -signal.SIGKILL
    create_database(f"sqlite:///{path}")
    assert [p.name for p in tmp_path.iterdir()] == ["mlflow.db"]


def test_a_servers_log_has_no_name_and_is_told_when_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    (tmp_path / "mlflow.py").write_text("raise SystemExit('out of luck')")
    broken = {"PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1"}
    with MlflowServer("sqlite:///nowhere.db", 1, environment=broken) as failing:
        assert list(scratch.iterdir()) == []
        with pytest.raises(ServerError, match="did not start: out of luck"):
            failing.wait_until_it_answers()


def test_no_server_outlives_its_keeper(uri: str) -> None:
    with MlflowServer(uri, free_port()):
        (keeper,) = wait_for(lambda: [p for p in offspring() if "kept.py" in " ".join(p.cmdline())])
        served = wait_for(lambda: keeper.children())
        keeper.kill()
    wait_until_gone(served)


def offspring() -> list[psutil.Process]:
    return psutil.Process().children()


@pytest.mark.parametrize("statement", ["BEGIN", "INSERT OR IGNORE INTO metrics", "COMMIT"])
def test_a_publisher_killed_in_a_transaction_leaves_neither_half_a_run_nor_its_files(
    tmp_path: Path, uri: str, statement: str
) -> None:
    plan = make_plan(tmp_path)
    entries = train_all(plan)

    def publish() -> None:
        publisher = Publisher(uri, plan, plan.store)
        assert publisher.database is not None

        def traced(sql: str) -> None:
            if sql.startswith(statement):
                os.kill(os.getpid(), signal.SIGKILL)

        publisher.database._connection.set_trace_callback(traced)
        publisher.publish(entries[0])

    process = FORK.Process(target=publish)
    process.start()
    assert exit_code(process) == -signal.SIGKILL
    assert synced(uri, plan, "words") == len(entries)
    assert_exact(uri, entries)
    places = {run.info.run_id for run in runs_of(uri).values()}
    assert {p.name for p in (tmp_path / "my runs/mlartifacts/s").iterdir()} == places
    assert sorted(p.name for p in tmp_path.glob("mlflow*")) == ["mlflow.db"]
