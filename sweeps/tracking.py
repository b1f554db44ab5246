"""Records → MLflow: one parent run per sweep, one child run per trial.

MLflow is a projection of the store. A run is found by its key before it is created, so
publishing twice changes nothing, and what could not be published (the server was away)
is published by the next run of the sweep. All calls are made from
one thread, away from Tune's control loop: a slow or dead server slows no trial.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sweeps.plan import Entry, Plan
from sweeps.progress import format_value
from sweeps.store import Store

if TYPE_CHECKING:
    from mlflow.entities import Metric
    from mlflow.tracking import MlflowClient

SWEEP, KEY, PUBLISHED = "calsweep.sweep", "calsweep.key", "calsweep.published"
PARENT, ROW = "mlflow.parentRunId", "calsweep.row"
METRICS_PER_CALL = 1000
# A server that is away costs seconds to find out: after one failure the next trials wait for
# the end of the sweep instead of finding out again, each by itself.
AWAY_SECONDS = 30.0
ARTIFACTS = {
    "search": ("record.json",),
    "confirm": ("record.json", "predictions.npz", "history.npz", "reliability.png"),
}

T = TypeVar("T")
log = logging.getLogger(__name__)


def default_uri(store: Store) -> str:
    """The sqlite database in the store's own directory."""
    return f"sqlite:///{(store.root / 'mlflow.db').resolve()}"


def create_database(uri: str) -> None:
    """Make sure that a sqlite database, if ``uri`` names one, is there whole.

    MLflow builds a new database in place by dozens of migrations; killed half-way, or done by
    two processes at once, they leave one that cannot be opened again. So it is built under
    another name and linked to its own in one step; whoever comes second uses the first's.
    """
    from mlflow.tracking import MlflowClient

    path = Path(uri.removeprefix("sqlite:///"))
    if not uri.startswith("sqlite:///") or path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".mlflow-", dir=path.parent) as directory:
        draft = Path(directory) / path.name
        MlflowClient(tracking_uri=f"sqlite:///{draft}").search_experiments(max_results=1)
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(draft)


class Publisher:
    """Writes runs to one MLflow server or database, each once."""

    def __init__(self, uri: str, plan: Plan, store: Store) -> None:
        # Retrying for minutes would only delay the word that the server is away.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        from mlflow.tracking import MlflowClient

        for chatty in ("alembic", "mlflow", "mlflow.store.db.utils"):
            logging.getLogger(chatty).setLevel(logging.ERROR)
        create_database(uri)
        self.plan = plan
        self.store = store
        self.sweep = plan.spec.name
        self.client: MlflowClient = MlflowClient(tracking_uri=uri)
        self.experiment = self._experiment(uri)
        self.runs = self._existing()
        self.parent = self._parent()

    def publish(self, entry: Entry) -> None:
        """Bring one trial's run to what its record says."""
        run_id, published = self.runs.get(entry.key, ("", ""))
        record = self.store.record(entry.key)
        if record is None or published == self._stamp(entry):
            return
        if not run_id:
            run = self.client.create_run(
                self.experiment, run_name=run_name(self.plan, entry), tags=self._tags(entry)
            )
            run_id = run.info.run_id
            self.runs[entry.key] = (run_id, "")
        directory = self.store.trial_directory(entry.key)
        for name in ARTIFACTS[entry.config.phase]:
            if (directory / name).exists():
                self.client.log_artifact(run_id, str(directory / name))
        self._log(entry, run_id, record)
        self.client.set_terminated(run_id, "FINISHED" if record["status"] == "done" else "FAILED")
        self.runs[entry.key] = (run_id, self._stamp(entry))

    def publish_sweep(self, directory: Path, summary: str) -> None:
        """Bring the parent run to its end: the spec, the tables, the figures, a description."""
        for path in sorted(directory.glob("*.*")):
            self.client.log_artifact(self.parent, str(path))
        for path in sorted((directory / "figures").glob("*.png")):
            self.client.log_artifact(self.parent, str(path), "figures")
        self.client.set_tag(self.parent, "mlflow.note.content", summary)
        self.client.set_terminated(self.parent, "FAILED" if self.plan.failed else "FINISHED")

    def _experiment(self, uri: str) -> str:
        found = self.client.get_experiment_by_name(self.sweep)
        if found is not None:
            return str(found.experiment_id)
        local = uri.startswith("sqlite:")
        artifacts = (self.store.root / "mlartifacts" / self.sweep).resolve().as_uri()
        return str(self.client.create_experiment(self.sweep, artifacts if local else None))

    def _existing(self) -> dict[str, tuple[str, str]]:
        runs: dict[str, tuple[str, str]] = {}
        token: str | None = ""
        while token is not None:
            page = self.client.search_runs([self.experiment], max_results=1000, page_token=token)
            for run in page:
                if KEY in run.data.tags:
                    tags = run.data.tags
                    ended = run.info.status != "RUNNING"
                    stamp = tags.get(PUBLISHED, "") if ended else ""
                    runs[tags[KEY]] = (run.info.run_id, stamp)
            token = page.token or None
        return runs

    def _parent(self) -> str:
        if self.sweep in self.runs:
            run_id = self.runs[self.sweep][0]
            self.client.update_run(run_id, status="RUNNING")
            return run_id
        tags = {SWEEP: self.sweep, KEY: self.sweep, "calsweep.phase": "sweep"}
        run = self.client.create_run(self.experiment, run_name=self.sweep, tags=tags)
        return str(run.info.run_id)

    def _tags(self, entry: Entry) -> dict[str, str]:
        return {
            SWEEP: self.sweep,
            KEY: entry.key,
            PARENT: self.parent,
            "calsweep.dataset": entry.config.dataset_name,
            "calsweep.method": entry.config.method,
            ROW: entry.row,
            "calsweep.phase": entry.config.phase,
        }

    def _stamp(self, entry: Entry) -> str:
        """What must be there for a run to be complete; it changes when maps are added."""
        return ",".join(
            [
                self.plan.spec.evaluation.tag,
                *sorted(self.store.maps(entry.key, self.plan.spec.evaluation.tag)),
            ]
        )

    def _metrics(self, entry: Entry, record: dict[str, Any]) -> Iterator[Metric]:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        for row in record.get("curve", []):
            for name, value in row.items():
                if name != "epoch":
                    yield Metric(name, float(value), now, int(row["epoch"]))
        for name, value in record.get("validation", {}).items():
            yield Metric(f"selected/{name}", float(value), now, 0)
        for chosen, evaluation in self.store.maps(entry.key, self.plan.spec.evaluation.tag).items():
            prefix = "test" if chosen == "identity" else f"test/{chosen}"
            for name, value in evaluation.get("test", {}).items():
                yield Metric(f"{prefix}/{name}", float(value), now, 0)
            for name, value in evaluation.get("large", {}).items():
                yield Metric(f"{prefix}/large_{name}", float(value), now, 0)
        if "seconds" in record:
            yield Metric("train_seconds", float(record["seconds"]), now, 0)

    def _log(self, entry: Entry, run_id: str, record: dict[str, Any]) -> None:
        """Parameters, metrics and tags in as few calls as there can be: each costs a commit."""
        from mlflow.entities import Param, RunTag

        config = entry.config
        values: dict[str, Any] = {"seed": config.seed, "model": config.model.name}
        values |= {"dataset": config.dataset_name, "method": config.method}
        values |= config.hyperparameters
        values |= {f"training.{k}": v for k, v in config.training.model_dump().items()}
        params = [Param(name, str(value)) for name, value in values.items()]
        # The row is a tag: parameters can never change, and a row may be renamed.
        tags = [RunTag(PUBLISHED, self._stamp(entry)), RunTag(ROW, entry.row)]
        if record["status"] == "failed":
            tags.append(RunTag("calsweep.reason", record["reason"][:4000]))
        *earlier, last = batched(self._metrics(entry, record), METRICS_PER_CALL) or [[]]
        for metrics in earlier:
            self.client.log_batch(run_id, metrics=metrics)
        self.client.log_batch(run_id, metrics=last, params=params, tags=tags)


class Recorder:
    """Publishes from a thread of its own while the sweep runs.

    What fails is kept and tried once more at the end; ``close`` returns the number of
    trials that could not be published, and ``error`` says why.
    """

    def __init__(self, uri: str, plan: Plan, store: Store) -> None:
        self.uri = uri
        self.plan = plan
        self.store = store
        self.error = ""
        self.experiment = ""
        self._queue: queue.SimpleQueue[Entry | None] = queue.SimpleQueue()
        self._publisher: Publisher | None = None
        self._failed: list[Entry] = []
        self._away_until = 0.0
        self._thread = threading.Thread(target=self._work, name="recorder", daemon=True)
        self._thread.start()

    def submit(self, entry: Entry) -> None:
        """Publish this trial when its turn comes."""
        self._queue.put(entry)

    def close(self, directory: Path, summary: str) -> int:
        """Publish what is left and the sweep's own run."""
        self._queue.put(None)
        self._thread.join()
        left, self._failed = self._failed, []
        self._away_until = 0.0
        for entry in left:
            self._publish(entry)
        if not self._failed:
            self.error = ""
            try:
                self._connected().publish_sweep(directory, summary)
            except Exception as error:  # whatever the tracking server does, the sweep is done
                self.error = str(error)
        return len(self._failed)

    def _work(self) -> None:
        while (entry := self._queue.get()) is not None:
            self._publish(entry)

    def _publish(self, entry: Entry) -> None:
        if time.monotonic() < self._away_until:
            self._failed.append(entry)
            return
        try:
            self._connected().publish(entry)
        except Exception as error:  # as above: tracking must never end a sweep
            self.error = f"{type(error).__name__}: {error}"
            self._failed.append(entry)
            self._away_until = time.monotonic() + AWAY_SECONDS

    def _connected(self) -> Publisher:
        if self._publisher is None:
            self._publisher = Publisher(self.uri, self.plan, self.store)
            self.experiment = self._publisher.experiment
        return self._publisher


def run_name(plan: Plan, entry: Entry) -> str:
    """A name that tells runs apart in a table: method, phase and what was varied."""
    config = entry.config
    searched = plan.cells[entry.cell].study.space.searched
    knobs = [f"{n}={format_value(config.hyperparameters[n])}" for n in searched]
    where = f"seed {config.seed}" if config.phase == "confirm" else f"#{entry.number}"
    return " ".join([entry.row, config.dataset_name, where, *knobs])


def batched(values: Iterable[T], size: int) -> list[list[T]]:
    """Lists of at most ``size`` values; none for no values."""
    iterator = iter(values)
    return list(iter(lambda: list(islice(iterator, size)), []))
