"""Sweeps with records as trials would file them, and what MLflow then says of them."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch
from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from sweeps.analysis import Analysis
from sweeps.engine.cell import PlannedTrial
from sweeps.engine.plan import Plan
from sweeps.spec import load_spec
from sweeps.store import Store, encode_arrays
from sweeps.tracking import Recorder, sync
from sweeps.tracking.mlflow.backend import MlflowBackend
from sweeps.tracking.mlflow.database import create_database
from tests.outcomes import evaluation as evaluated
from tests.outcomes import outcome
from tests.ports import free_port
from tests.waiting import answers, wait_for

SPEC = """\
name: s
datasets: [blobs-1.7]
model: {name: mlp, widths: [4]}
methods: {standard: {weight_decay: 0}}
training: {epochs: 6, batch_size: full, evaluate_every: 2}
search: {sampler: random, trials: TRIALS}
confirm_seeds: 2
calibrators: [temperature]
"""
BEGAN = 1_700_000_000.0
EPOCHS = 7
"""Evaluated every second epoch: 2, 4, 6; and the last, without an evaluation."""
PUBLISHED_STEPS = [2, 4, 6, 7]


@cache
def empty_database() -> bytes:
    """A tracking database without a run: MLflow takes seconds to make one."""
    with tempfile.TemporaryDirectory() as directory:
        create_database(f"sqlite:///{directory}/mlflow.db")
        return Path(directory, "mlflow.db").read_bytes()


def put_database(directory: Path) -> None:
    """Put one where a command would make it, in a store or in the current directory."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "mlflow.db").write_bytes(empty_database())


def make_plan(directory: Path, trials: int = 3, text: str = SPEC) -> Plan:
    spec = directory / "s.yaml"
    spec.write_text(text.replace("TRIALS", str(trials)))
    plan = Plan(load_spec(spec), Store(directory / "my runs"))
    plan.replay()
    return plan


def body(epochs: int = EPOCHS, lineage: str = "a", began: float = BEGAN) -> dict[str, Any]:
    """A curve with its times, as in a record or a live file."""
    curve = []
    for epoch in range(1, epochs + 1):
        row = {"epoch": float(epoch), "train/lr": 0.1, "train/loss": 1 / epoch}
        if epoch % 2 == 0:
            row |= {"validation/nll": 2 / epoch, "validation/ece": 0.5 / epoch}
        curve.append(row)
    times = [began + epoch for epoch in range(1, epochs + 1)]
    return {"curve": curve, "times": times, "lineage": lineage}


def record(trial: PlannedTrial, status: str = "done", **about: Any) -> dict[str, Any]:
    return body(**about) | {
        "config": trial.config.model_dump(mode="json"),
        "status": status,
        "reason": "" if status == "done" else f"it {status}",
        "environment": {"git": "0123abc"},
        "seconds": float(EPOCHS),
        "validation": {"nll": 0.25, "ece": 0.125},
    }


def evaluation(ece: float = 0.5) -> dict[str, Any]:
    return {
        "test": {"ece": ece, "nll": 0.75},
        "intervals": {"ece": [ece / 2, ece * 2]},
        "floor": [0.01, 0.02],
        "validation": {"ece": 0.375},
        "large": {"ece": 0.4375},
    }


def predictions() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {
        "validation_logits": torch.randn(6, 5, generator=generator),
        "validation_labels": torch.arange(6) % 5,
        "test_logits": torch.randn(8, 5, generator=generator),
        "test_labels": torch.arange(8) % 5,
        "test_posterior": torch.rand(8, 5, generator=generator),
    }


def train(plan: Plan, trial: PlannedTrial, status: str = "done", **about: Any) -> None:
    """File what a trial would; its training begins with its number."""
    about.setdefault("began", BEGAN + 100 * trial.number)
    found, sweep = outcome(**record(trial, status, **about)), plan.spec.name
    if status == "pruned":
        plan.store.file_stopped(sweep, trial.study_id, trial.key, found)
        return
    confirm = status == "done" and trial.config.phase == "confirm"
    files = {"predictions.npz": encode_arrays(predictions())} if confirm else {}
    plan.store.file_record(trial.key, found, files)
    for name in plan.spec.calibrator_names if confirm else ():
        plan.store.write_evaluation(
            trial.key, plan.spec.evaluation.tag, name, evaluated(name, **evaluation())
        )


def synced(uri: str, plan: Plan, summary: str | None, analysis: Analysis | None = None) -> int:
    """Publish all that the store has of the plan's sweep to MLflow."""
    backend = MlflowBackend(uri, plan, plan.store)
    return sync(backend, plan.trials.values(), summary, analysis)


def recording(uri: str, plan: Plan) -> Recorder:
    """A recorder that publishes to MLflow."""
    return Recorder(MlflowBackend(uri, plan, plan.store))


def train_all(plan: Plan) -> list[PlannedTrial]:
    """Every trial of the plan, in order."""
    trained = []
    while (trial := plan.next()) is not None:
        train(plan, trial)
        plan.complete(trial.key)
        trained.append(trial)
    return trained


def runs_of(uri: str, experiment: str = "s") -> dict[str, Run]:
    """The runs of an experiment by key; fails if there are two of one."""
    client = MlflowClient(uri)
    found = client.get_experiment_by_name(experiment)
    if found is None:
        return {}
    runs = list(client.search_runs([found.experiment_id], max_results=1000))
    keys = Counter(run.data.tags["calsweep.key"] for run in runs)
    assert set(keys.values()) <= {1}
    return {run.data.tags["calsweep.key"]: run for run in runs}


def steps(uri: str, run: Run, name: str = "train/loss") -> list[int]:
    """At which steps a metric was logged, one for every time."""
    history = MlflowClient(uri).get_metric_history(run.info.run_id, name)
    return sorted(metric.step for metric in history)


def tables(database: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All that the database says of runs, the runs called by their keys."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        names = "SELECT run_uuid, value FROM tags WHERE key = 'calsweep.key'"
        keys = dict(connection.execute(names).fetchall())
        found = {}
        for table in ("runs", "tags", "params", "metrics", "latest_metrics"):
            rows = connection.execute(f"SELECT * FROM {table}").fetchall()
            found[table] = sorted(
                (tuple(_named(value, keys) for value in row) for row in rows), key=repr
            )
    return found


def _named(value: Any, keys: dict[str, str]) -> Any:
    for run_id, key in keys.items() if isinstance(value, str) else ():
        value = value.replace(run_id, f"<{key}>")
    return value


class Server:
    """An MLflow server on a database of its own, which can be killed and come back."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.directory = directory
        self.uri = f"http://127.0.0.1:{self.port}"
        self.database = directory / "server.db"
        self.log = directory / "server.log"
        self.database.write_bytes(empty_database())
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        arguments = ["server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"]
        arguments += ["--backend-store-uri", f"sqlite:///{self.database}"]
        arguments += ["--artifacts-destination", str(self.directory / "artifacts")]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mlflow", *arguments],
                env=os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_for(lambda: answers(f"{self.uri}/health"), self._process, log=self.log)

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, 9)
            self._process.wait()
            self._process = None


@contextlib.contextmanager
def server(directory: Path) -> Iterator[Server]:
    made = Server(directory)
    try:
        made.start()
        yield made
    finally:
        made.kill()
