"""The exported model in a registry and behind a server."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow.tracking import MlflowClient

from sweeps.cli.main import main
from sweeps.sweep import open_sweep
from sweeps.tracking.mlflow.publisher import Publisher
from tests.exported import Swept
from tests.ports import free_port
from tests.tracked import empty_database
from tests.waiting import answers, wait_for

pytestmark = pytest.mark.slow


def test_it_is_registered_under_its_alias(
    swept: Swept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a run of its training one is made, which ``sync`` does not take for its own."""
    database = tmp_path / "mlflow.db"
    database.write_bytes(empty_database())
    uri = f"sqlite:///{database}"
    store = tmp_path / "runs"
    shutil.copytree(swept.directory / "runs", store)
    place = ["--store", str(store)]
    client = MlflowClient(uri)

    def exported(number: int, *options: str) -> str:
        out = tmp_path / f"model{number}"
        assert main(["export", "table", "--out", str(out), *place, *options]) == 0
        return str(out)

    exported(1, "--tracking", uri, "--register", "cards")
    version = client.get_model_version_by_alias("cards", "winner")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)  # a configured one is used unasked
    exported(2, "--alias", "second")
    second = client.get_model_version_by_alias("table", "second")
    assert second.run_id == version.run_id
    sweep = open_sweep("table", store)
    publisher = Publisher(uri, sweep.plan, sweep.store)
    for trial in sweep.plan.trials.values():
        publisher.publish(trial)
    assert client.get_run(version.run_id).info.lifecycle_stage == "active"
    exported(3, "--register", "cards")
    third = client.get_model_version_by_alias("cards", "winner")
    assert int(third.version) == 2
    run = client.get_run(third.run_id)
    assert run.data.tags["calsweep.key"] == third.tags["calsweep.key"]
    assert run.outputs.model_outputs
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(uri)
    try:
        loaded = mlflow.pyfunc.load_model("models:/cards@winner")
    finally:
        mlflow.set_tracking_uri(before)
    expected = swept.expected(tmp_path / "model3").amax(1).tolist()
    assert loaded.predict(swept.test)["confidence"].tolist() == expected


def test_a_server_that_is_away_costs_the_registration_only(
    swept: Swept,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://bob:s3cret@127.0.0.1:{free_port()}")
    assert swept.export("table", tmp_path / "model") == 1
    said = capsys.readouterr().err
    assert "cannot register" in said
    assert "the export" in said
    assert "s3cret" not in said
    assert len(said.splitlines()) == 1
    found = mlflow.pyfunc.load_model(str(tmp_path / "model")).predict(swept.test)
    assert len(found) == 300


@pytest.fixture
def served(winner: Path, tmp_path: Path) -> Iterator[str]:
    port, said = free_port(), tmp_path / "log"
    binaries = Path(sys.executable).parent
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", str(winner)]
    with said.open("wb") as log:
        server = subprocess.Popen(
            [*command, "--env-manager", "local", "--port", str(port)],
            env=os.environ | {"PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', '')}"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        wait_for(lambda: answers(f"http://127.0.0.1:{port}/ping"), server, log=said)
        yield f"http://127.0.0.1:{port}/invocations"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def test_mlflow_serves_it(swept: Swept, winner: Path, served: str) -> None:
    def asked(body: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            served, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["predictions"]

    rows = swept.test.head(20)
    split = json.loads(rows.to_json(orient="split", index=False))
    answer = asked({"dataframe_split": split})
    found = mlflow.pyfunc.load_model(str(winner)).predict(rows)
    assert [row["class"] for row in answer] == found["class"].tolist()
    assert [row["abstain"] for row in answer] == found["abstain"].tolist()
    for row, confidence, probabilities in zip(
        answer, found["confidence"], found["probabilities"], strict=True
    ):
        assert row["confidence"] == confidence
        assert row["probabilities"] == probabilities
    example = json.loads((winner / "serving_input_example.json").read_text())
    assert len(asked(example)) == 1
    with pytest.raises(urllib.error.HTTPError) as refused:
        asked({"dataframe_split": {"columns": ["age"], "data": [[40]]}})
    assert refused.value.code == 400
