"""A night's own MLflow run: the parent of its sweeps' runs, with verdict, report and numbers.

All nights of a suite are in one experiment, named after it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.host.scratch import scratch_directory
from sweeps.host.secrets import masked
from sweeps.tracking.mlflow.database import create_database
from sweeps.tracking.mlflow.database_file import database_path
from sweeps.tracking.mlflow.failures import reason
from sweeps.tracking.mlflow.run_content import (
    LONGEST_NAME,
    LONGEST_TAG,
    PARENT,
    PHASE,
    milliseconds,
)
from sweeps.tracking.mlflow.settings import mlflow_settings
from sweeps.tracking.mlflow.sweep_content import NOTE
from sweeps.tracking.mlflow.sweep_run import KIND

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

SUITE, NIGHT, VERDICT = "calsweep.suite", "calsweep.night", "calsweep.verdict"
MOST_METRICS = 900
"""Values per call: MLflow accepts a thousand."""


class NightRun:
    """The run of one night in MLflow. If MLflow is unavailable or fails, the night continues.

    ``problem`` says why it could not be written, and is empty otherwise. A server that refuses
    access (401, 403) is different: the command checks before the night begins, and every sweep
    checks again (``sweeps.tracking.mlflow.access``); such a night ends with ``UserError``.
    """

    def __init__(self, suite: str, night: str, uri: str, directory: Path) -> None:
        self.uri = uri
        self.problem = ""
        self._suite, self._night, self._directory = suite, night, directory
        self._run = self._experiment_id = ""

    @property
    def link(self) -> str:
        """The run's page on a server; empty for a database, which has none, or if unknown."""
        if not (self._run and self.uri.startswith(("http://", "https://"))):
            return ""
        base = masked(self.uri).replace("***@", "").rstrip("/")
        return f"{base}/#/experiments/{self._experiment_id}/runs/{self._run}"

    @mlflow_settings()
    def begin(self) -> str | None:
        """The run's id, reused if the night was started before; None if MLflow is unavailable."""
        try:
            self._begin()
        except Exception as error:  # of any kind: the records are safe, and can be published later
            self._failed(error)
        return self._run or None

    @mlflow_settings()
    def end(
        self,
        status: str,
        tags: Mapping[str, str],
        metrics: Mapping[str, float],
        files: Mapping[str, bytes],
    ) -> None:
        """End the run with ``status`` FINISHED, FAILED or KILLED.

        The Markdown among the files becomes its description.
        """
        self.problem = ""
        try:
            self._end(status, tags, metrics, files)
        except Exception as error:  # as above
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        why = reason(error, self.uri)
        self.problem = f"MLflow could not be reached at {masked(self.uri)}: {why}"

    def _begin(self) -> None:
        client = self._client()
        experiment = self._experiment_id = self._experiment(client)
        named = f"tags.`{NIGHT}` = '{self._night}' AND tags.`{PHASE}` = 'night'"
        found = client.search_runs([experiment], named, max_results=1)
        if found:
            self._run = str(found[0].info.run_id)
            client.update_run(self._run, status="RUNNING")
            client.set_tag(self._run, VERDICT, "incomplete")  # until it has ended
        else:
            tags = {SUITE: self._suite, NIGHT: self._night, PHASE: "night"}
            name = f"{self._suite} {self._night}"
            self._run = str(client.create_run(experiment, run_name=name, tags=tags).info.run_id)
        for orphan in self._orphans(client, experiment):
            client.set_tag(orphan.info.run_id, PARENT, self._run)

    def _orphans(self, client: MlflowClient, experiment: str) -> list[Run]:
        """Sweeps of this night that were published while the night had no run."""
        query = f"tags.`{PHASE}` = 'sweep' AND attributes.run_name LIKE '%-{self._night}'"
        runs = client.search_runs([experiment], query, max_results=1000)
        return [run for run in runs if PARENT not in run.data.tags]

    def _end(
        self,
        status: str,
        tags: Mapping[str, str],
        metrics: Mapping[str, float],
        files: Mapping[str, bytes],
    ) -> None:
        from mlflow.entities import Metric, RunTag

        self._begin()  # the server may be available again
        client, now = self._client(), milliseconds(time.time())
        notes = [content.decode() for name, content in files.items() if name.endswith(".md")]
        named = {**tags, **({NOTE: notes[0]} if notes else {})}
        numbers = [Metric(name[:LONGEST_NAME], value, now, 0) for name, value in metrics.items()]
        for start in range(0, len(numbers), MOST_METRICS):
            client.log_batch(self._run, metrics=numbers[start : start + MOST_METRICS])
        run_tags = [RunTag(name, value[:LONGEST_TAG]) for name, value in named.items()]
        client.log_batch(self._run, tags=run_tags)
        with scratch_directory() as directory:
            for name, content in files.items():
                (directory / name).write_bytes(content)
            client.log_artifacts(self._run, str(directory))
        client.set_terminated(self._run, status)

    def _client(self) -> MlflowClient:
        from mlflow.tracking import MlflowClient

        create_database(self.uri)
        return MlflowClient(tracking_uri=self.uri)

    def _experiment(self, client: MlflowClient) -> str:
        """The suite's experiment; its files are kept beside the nights, which may be deleted."""
        found = client.get_experiment_by_name(self._suite)
        if found is not None:
            if found.lifecycle_stage == "deleted":
                client.restore_experiment(found.experiment_id)
            return str(found.experiment_id)
        local = database_path(self.uri) is not None
        files = (self._directory / "mlartifacts").resolve().as_uri() if local else None
        made = client.create_experiment(self._suite, files)
        client.set_experiment_tag(made, KIND, "custom_model_development")
        return str(made)


def metric_name(*parts: str) -> str:
    """A metric name from parts that may contain characters that MLflow does not allow."""
    return "/".join(re.sub(r"[^\w. :-]", "_", part) for part in parts)
