"""Real sweeps in real processes, to be disturbed and counted."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from sweeps.engine.identity import TrialConfig
from sweeps.engine.trial import TrialRun
from sweeps.spec.schema import Evaluation
from sweeps.store import Store, TrialRecord
from tests.faults.leftovers import MARK, Trace
from tests.ports import free_port as free_port
from tests.tracked import empty_database, put_database
from tests.waiting import answers, wait_for, wait_until_gone

SEAL = {"checksum", "format", "place"}
"""What a sealed file says of itself."""
STARTED: list[subprocess.Popen[str]] = []
"""What the running test has started; swept up at its end."""

# A method that takes its time, misbehaves on request and writes down every step it makes.
MODULE = """
import os
import signal
import time
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch.nn import functional as F

from calibration.methods import LossMethod, MethodHyperparameters


class PacedHyperparameters(MethodHyperparameters):
    pause: Annotated[float, Field(ge=0)] = 0.0
    mode: Literal["fine", "raise", "nan", "memory", "die", "hang"] = "fine"
    at: Annotated[float, Field(ge=0, le=1)] = 0.5
    log: str = ""


class Paced(LossMethod):
    description = "cross-entropy, slowly, or not at all"
    Hyperparameters = PacedHyperparameters

    def loss(self, output, labels, numbers):
        hyperparameters, progress = self.hyperparameters, float(numbers["progress"])
        if hyperparameters.log:
            with open(hyperparameters.log, "a") as log:
                log.write(f"{hyperparameters.lr} {progress:.6f} {os.getpid()}\\\\n")
        time.sleep(hyperparameters.pause)
        if progress >= hyperparameters.at:
            self.misbehave(hyperparameters.mode)
        loss = F.cross_entropy(output.logits, labels)
        broken = hyperparameters.mode == "nan" and progress >= hyperparameters.at
        return loss * float("nan") if broken else loss

    def misbehave(self, mode):
        if mode == "raise":
            raise LookupError("this method has a bug")
        if mode == "memory":
            torch.empty(10**15)
        if mode == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if mode == "hang":
            time.sleep(3600)
""".replace("\\\\n", "\\n")


@dataclass
class Scene:
    """A directory with a spec, the method above, and the sweeps that run there."""

    directory: Path
    spec: str
    name: str = "faults"
    store: str = "runs"
    tracking: str = ""
    module: str = MODULE
    temporary: Path | None = None
    """Where its processes put temporary files, if not where all others do."""
    database: bool = False
    """Whether there is an empty tracking database, which a command would take seconds to make."""

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.trace = Trace(self.directory, self.temporary)
        (self.directory / "paced.py").write_text(self.module)
        if self.database:
            put_database(self.root)
        self.write(self.spec)

    def write(self, spec: str) -> None:
        """Put another spec in place."""
        (self.directory / "spec.yaml").write_text(f"name: {self.name}\n{spec}")

    def hurry(self) -> None:
        """From now on the method makes no pauses: what it learns stays the same."""
        path = self.directory / "paced.py"
        path.write_text(path.read_text().replace("time.sleep(hyperparameters.pause)", "pass"))

    def words(self, *arguments: str, command: str = "run") -> list[str]:
        """The command, as it is typed."""
        options = ["--store", self.store]
        if self.tracking:
            options += ["--tracking", self.tracking]
        return [sys.executable, "-m", "sweeps.cli", command, "spec.yaml", *options, *arguments]

    def environment(self) -> dict[str, str]:
        """This process's environment with what tells the scene's processes from others."""
        ours = {"COLUMNS": "140", MARK: str(self.directory)}
        if self.temporary is not None:
            ours["TMPDIR"] = str(self.temporary)
        return os.environ | ours

    def start(
        self, *arguments: str, command: str = "run", watched: bool = True
    ) -> subprocess.Popen[str]:
        """The command, running; ended with the test if it is watched."""
        process = subprocess.Popen(
            self.words(*arguments, command=command),
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(),
        )
        self.trace.pids.append(process.pid)
        if watched:
            STARTED.append(process)
        return process

    def run(self, *arguments: str, command: str = "run") -> subprocess.CompletedProcess[str]:
        """The command, run to its end."""
        process = self.start(*arguments, command=command)
        out, err = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    @property
    def root(self) -> Path:
        return self.directory / self.store

    def records(self) -> dict[str, TrialRecord]:
        """Every complete record, by key; who looks through the store might set one aside."""
        files = (self.root / "records").glob("*/record.json")
        return {path.parent.name: _record(path) for path in files}

    def attempts(self) -> dict[str, str]:
        """Which attempt each record is of: trained again, it would be another."""
        return {key: record.attempt for key, record in self.records().items()}

    def suggestions(self) -> list[Path]:
        return sorted((self.root / self.name / "suggestions").rglob("*.json"))

    def leaderboard(self) -> pd.DataFrame:
        """The table without what depends on the clock."""
        table = pd.read_csv(self.root / self.name / "leaderboard.csv")
        return table.drop(columns=[c for c in table if "seconds" in c])

    def client(self) -> MlflowClient:
        return MlflowClient(self.tracking or f"sqlite:///{self.root / 'mlflow.db'}")

    def runs(self) -> list[Run]:
        """The MLflow runs of the sweep's experiment."""
        client = self.client()
        experiment = client.get_experiment_by_name(self.name)
        if experiment is None:
            return []
        return list(client.search_runs([experiment.experiment_id], max_results=5000))

    def trials(self) -> list[Run]:
        """The runs of trials: all but the sweep's own."""
        return [run for run in self.runs() if "mlflow.parentRunId" in run.data.tags]

    def curve_steps(self, run: Run, metric: str = "validation/nll") -> list[int]:
        return [m.step for m in self.client().get_metric_history(run.info.run_id, metric)]

    def assert_exact(self, trials: int, epochs: list[int], statuses: set[str]) -> None:
        """So many records and MLflow runs, all ended, every epoch once in every curve."""
        records, runs = self.records(), self.trials()
        assert len(records) == trials
        assert {run.data.tags["calsweep.key"] for run in runs} == set(records)
        assert len(runs) == trials
        assert {run.info.status for run in self.runs()} == statuses
        assert len(self.runs()) == trials + 1
        for record in records.values():
            if record.status == "done":
                counted = [row["epoch"] for row in record.curve]
                assert counted == list(range(1, len(counted) + 1))
        for run in runs:
            if records[run.data.tags["calsweep.key"]].status == "done":
                assert self.curve_steps(run) == epochs


def _record(path: Path) -> TrialRecord:
    values = json.loads(path.read_text())
    return TrialRecord(**{n: v for n, v in values.items() if n not in SEAL})


def retrained(record: TrialRecord, scene: Scene, **hyperparameters: Any) -> TrialRecord:
    """The record of the same training, made in this process without any disturbance."""
    sys.modules.pop("paced", None)  # that of another scene
    sys.path.insert(0, str(scene.directory))
    try:
        return _retrained(record, scene.directory / "calm", hyperparameters)
    finally:
        sys.path.remove(str(scene.directory))


def _retrained(record: TrialRecord, place: Path, hyperparameters: dict[str, Any]) -> TrialRecord:
    config = TrialConfig.model_validate(record.config)
    config = config.model_copy(update={"hyperparameters": config.hyperparameters | hyperparameters})
    store = Store(place)
    TrialRun(config, store, calibrators=[], evaluation=Evaluation()).advance(600)
    made = store.record(config.key())
    assert made is not None
    return made


def kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL, and wait until its workers are gone; what else it has started goes by itself."""
    trainers = workers(process)
    process.kill()
    process.communicate()
    wait_until_gone(trainers)


def workers(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes of a sweep that train."""
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            title = " ".join(child.cmdline())
        except psutil.Error:
            continue
        # Idle it has our class's name, at work that of Tune's wrapper.
        if title.startswith(("ray::CalibrationTrial", "ray::ResourceTrainable")):
            found.append(child)
    return found


def sweep_up() -> None:
    """End whatever a failed test has left running."""
    while STARTED:
        process = STARTED.pop()
        if process.poll() is None:
            kill(process)


def start_server(directory: Path, port: int) -> subprocess.Popen[bytes]:
    """Start the server and wait until it answers."""
    if not (directory / "server.db").exists():
        (directory / "server.db").write_bytes(empty_database())
    command = ["mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{directory / 'server.db'}"]
    command += ["--artifacts-destination", str(directory / "artifacts")]
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=directory,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
    )

    wait_for(lambda: answers(f"http://127.0.0.1:{port}/health"), process)
    return process


def stop_server(process: subprocess.Popen[bytes]) -> None:
    """Kill the server with all its processes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
