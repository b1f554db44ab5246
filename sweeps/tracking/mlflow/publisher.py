"""One sweep's runs on one MLflow server or in one database: found, created and updated.

A run's identity is (sweep, key): it is looked up before it is created, and existing content is
not written again. Metrics carry the times of the record, so that even a batch that arrives twice
(because an answer was lost) leaves every epoch once.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sweeps.analysis import Analysis
from sweeps.engine.cell import PlannedTrial
from sweeps.engine.plan import Plan
from sweeps.host.scratch import scratch_directory
from sweeps.store import Store, TrialRecord, file_name
from sweeps.tracking.mlflow import run_content as content
from sweeps.tracking.mlflow.artifacts import chooses_place, is_local, local_path, write_files
from sweeps.tracking.mlflow.database import (
    SQLITE_PREFIX,
    Database,
    FinishedRun,
    MetricPoint,
    create_database,
)
from sweeps.tracking.mlflow.existing import KnownRun, existing_runs, open_experiment
from sweeps.tracking.mlflow.run_content import (
    ENDS,
    KEY,
    PARENT,
    PHASE,
    PUBLISHED,
    SWEEP,
)
from sweeps.tracking.mlflow.sweep_run import publish_results

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

# MLflow accepts 1000 values per call, including parameters and tags.
POINTS_PER_CALL = 800
UPDATED = "calsweep.updated"


class Publisher:
    """Writes the runs of one sweep; not thread-safe, for one thread.

    The sweep's own run is the parent of its trials' runs; ``parent_run`` is its own parent, if
    any, such as a night's. ``answered`` is called at every answer of the server: a slow server
    is not a hanging one.

    For use within ``mlflow_settings``. Raises ``mlflow.exceptions.MlflowException`` or
    ``sqlite3.Error`` if the server or the database refuses or is unavailable, ``StoreError`` if
    the store cannot be read.
    """

    def __init__(
        self,
        uri: str,
        plan: Plan,
        store: Store,
        parent_run: str | None = None,
        answered: Callable[[], None] | None = None,
    ) -> None:
        from mlflow.tracking import MlflowClient

        create_database(uri)
        self.uri = uri
        self.plan = plan
        self.store = store
        self.sweep = plan.spec.name
        self.parent_run = parent_run
        self.published = 0
        client = MlflowClient(tracking_uri=uri)
        self.client = client if answered is None else cast("MlflowClient", _Heard(client, answered))
        name = plan.spec.tracking.experiment or self.sweep
        place = (store.local or Path.cwd()) / "mlartifacts" / file_name(name)
        files = place.resolve().as_uri() if chooses_place(uri) else None
        found, new = open_experiment(self.client, name, files)
        self.experiment = str(found.experiment_id)
        self._artifacts = str(found.artifact_location)
        self.database = Database.open(uri) if is_local(self._artifacts) else None
        self.parent = ""
        self.runs: dict[str, KnownRun] = {}
        self.runs = {} if new else self._existing()
        self.parent = self._parent()
        self.open = True
        """The sweep's own run is RUNNING."""

    def publish(self, trial: PlannedTrial) -> None:
        """Update one trial's run to its outcome; nothing if it has none."""
        outcome = self.store.outcome(self.sweep, trial.study_id, trial.key)
        if outcome is None:
            return
        tag, confirm = self.plan.spec.evaluation.tag, trial.config.phase == "confirm"
        measured = content.measured_by(tag)
        evaluations = (
            content.of_calibrators(self.store.evaluations(outcome, tag))
            if confirm and outcome.status == "done"
            else {}
        )
        stamp = content.stamp(trial, outcome, tag, evaluations)
        run = self.runs.get(trial.key)
        if run is not None:
            if self._is_complete(run, trial, ENDS[outcome.status], stamp):
                return
            remeasured = confirm and run.published and run.published.split(",")[0] != measured
            if run.lineage != outcome.lineage or remeasured:
                self._discard(trial)
                run = None
        if run is None and self.database is not None:
            self._insert(self.database, trial, outcome, evaluations, stamp)
        else:
            run = run or self._create(trial, outcome.lineage, content.span(outcome)[0])
            self._complete(run, trial, outcome, evaluations, stamp)
        self.published += 1

    def publish_live(self, trial: PlannedTrial) -> None:
        """Update a running trial's curve to its last checkpoint."""
        live = self.store.live(trial.key)
        if not live or not live["times"]:
            return
        run = self.runs.get(trial.key)
        if run is not None and run.lineage != live["lineage"]:
            self._discard(trial)
            run = None
        if run is not None and run.published:
            return
        parameters: dict[str, str] = {}
        if run is None:
            run = self._create(trial, live["lineage"], content.milliseconds(live["times"][0]))
            parameters = content.parameters(trial.config)
        elif run.status != "RUNNING":
            self.client.update_run(run.run_id, status="RUNNING")
            run.status = "RUNNING"
        rows = content.curve_rows(live["curve"], live["times"], after=self._step(run), whole=False)
        self._log(run, rows, parameters=parameters)

    def interrupt(self) -> None:
        """The sweep was interrupted: mark its running runs as killed."""
        self._kill_running()
        self.client.set_terminated(self.parent, "KILLED")
        self.open = False

    def publish_sweep(self, summary: str, analysis: Analysis | None = None) -> None:
        """End the parent run: spec, tables, figures, environment, a description.

        ``summary`` is the description, in Markdown. The winners of the ``analysis`` become
        metrics; its selection becomes tags of the confirmed runs.
        """
        # Requests that the server did not answer in time may have been executed since, and
        # a driver that lost its lock without noticing may have published too.
        there = self._existing()
        there.pop(self.sweep, None)
        self.runs = {key: self._newer(key, run) for key, run in there.items()}
        self._kill_running()
        publish_results(self, summary, analysis)
        ended = "FAILED" if self.plan.failed else "FINISHED"
        self.client.set_terminated(self.parent, ended if self.plan.finished else "KILLED")

    def _existing(self) -> dict[str, KnownRun]:
        ours = {self.parent, *(run.run_id for run in self.runs.values())}
        return existing_runs(self.client, self.database, self.experiment, self.sweep, ours)

    def _newer(self, key: str, found: KnownRun) -> KnownRun:
        """Our state of a run, unless that run was the deleted one of two."""
        known = self.runs.get(key)
        return found if known is None or known.run_id != found.run_id else known

    def _parent(self) -> str:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        known = self.runs.pop(self.sweep, None)
        above = {PARENT: self.parent_run} if self.parent_run else {}
        if known is None:
            tags = {SWEEP: self.sweep, KEY: self.sweep, PHASE: "sweep", UPDATED: now} | above
            run = self.client.create_run(self.experiment, run_name=self.sweep, tags=tags)
            return str(run.info.run_id)
        # A successful write also tells the recorder that the server is available.
        for name, value in {UPDATED: now, **above}.items():
            self.client.set_tag(known.run_id, name, value)
        self.client.update_run(known.run_id, status="RUNNING")
        return known.run_id

    def _is_complete(self, run: KnownRun, trial: PlannedTrial, status: str, stamp: str) -> bool:
        # A run that was stamped but not ended, or ended differently, is incomplete.
        renamed = run.row != trial.row and run.row not in self.plan.spec.methods
        return run.published == stamp and run.status == status and not renamed

    def _discard(self, trial: PlannedTrial) -> None:
        """Delete a run that describes a training other than the stored one."""
        self.client.delete_run(self.runs.pop(trial.key).run_id)

    def _tags(self, trial: PlannedTrial, lineage: str) -> dict[str, str]:
        return content.trial_tags(self.sweep, trial, lineage) | {PARENT: self.parent}

    def _insert(
        self,
        database: Database,
        trial: PlannedTrial,
        outcome: TrialRecord,
        evaluations: content.Evaluations,
        stamp: str,
    ) -> None:
        """Insert the whole run at once: files first, so that an existing run is complete."""
        start, end = content.span(outcome)
        lineage = outcome.lineage
        rows = _whole_curve(outcome, after=-1)
        tags = self._tags(trial, lineage) | content.outcome_tags(trial, outcome)
        run = FinishedRun(
            run_id=database.new_id(self.experiment, self.sweep, trial.key, lineage, stamp),
            name=content.run_name(self.plan, trial),
            status=ENDS[outcome.status],
            start=start,
            end=end,
            tags=tags | {PUBLISHED: stamp},
            parameters=content.parameters(trial.config),
            points=[
                *(p for row in rows for p in row),
                *content.result_points(outcome, evaluations),
            ],
        )
        place = f"{self._artifacts.rstrip('/')}/{run.run_id}/artifacts"
        try:
            write_files(place, content.trial_files(self.store, trial, outcome))
            database.insert(self.experiment, place, run)
        except BaseException:  # a run that was not inserted leaves nothing behind
            shutil.rmtree(local_path(place), ignore_errors=True)
            raise
        self.runs[trial.key] = KnownRun(run.run_id, place, run.status, trial.row, lineage, stamp)

    def _create(self, trial: PlannedTrial, lineage: str, start: int) -> KnownRun:
        run = self.client.create_run(
            self.experiment,
            start_time=start,
            tags=self._tags(trial, lineage),
            run_name=content.run_name(self.plan, trial),
        )
        uri = run.info.artifact_uri
        known = KnownRun(run.info.run_id, uri, "RUNNING", trial.row, lineage, step=-1, bare=True)
        self.runs[trial.key] = known
        return known

    def _complete(
        self,
        run: KnownRun,
        trial: PlannedTrial,
        outcome: TrialRecord,
        evaluations: content.Evaluations,
        stamp: str,
    ) -> None:
        """Add what is missing to an existing run, and end it."""
        rows = _whole_curve(outcome, after=self._step(run))
        there = {} if run.bare else self.client.get_run(run.run_id).data.metrics
        run.bare = False
        points = content.result_points(outcome, evaluations)
        rows += [[point] for point in points if there.get(point.name) != point.value]
        tags = content.outcome_tags(trial, outcome) | {PUBLISHED: stamp}
        if run.row != trial.row:
            self.client.update_run(run.run_id, name=content.run_name(self.plan, trial))
        self._log(run, rows, parameters=content.parameters(trial.config), tags=tags)
        self.store_artifacts(
            run.run_id, run.artifacts, content.trial_files(self.store, trial, outcome)
        )
        status = ENDS[outcome.status]
        self.client.set_terminated(run.run_id, status, content.span(outcome)[1])
        run.status, run.row, run.published = status, trial.row, stamp

    def _step(self, run: KnownRun) -> int:
        if run.step is None:
            run.step = -1
            for name in content.EVERY_ROW_HAS:
                history = self.client.get_metric_history(run.run_id, name)
                run.step = max((int(metric.step) for metric in history), default=-1)
                if history:
                    break
        return run.step

    def _log(
        self,
        run: KnownRun,
        rows: Iterable[list[MetricPoint]],
        parameters: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Log everything in as few calls as possible, with no row of a curve split between two."""
        from mlflow.entities import Metric, Param, RunTag

        calls: list[list[MetricPoint]] = [[]]
        for row in rows:
            if len(calls[-1]) + len(row) > POINTS_PER_CALL:
                calls.append([])
            calls[-1] += row
        params = [Param(*item) for item in (parameters or {}).items()]
        labels = [RunTag(*item) for item in (tags or {}).items()]
        step, run.step = self._step(run), None  # until it is known to have arrived
        for points in calls:
            metrics = [Metric(*point) for point in points]
            self.client.log_batch(run.run_id, metrics=metrics, params=params, tags=labels)
            params, labels = [], []
        run.step = max([step, *(point.step for points in calls for point in points)])

    def _kill_running(self) -> None:
        for run in self.runs.values():
            if run.status == "RUNNING":
                self.client.set_terminated(run.run_id, "KILLED")
                run.status = "KILLED"

    def store_artifacts(self, run_id: str, place: str, files: Mapping[str, bytes]) -> None:
        """Add files to a run; ``place`` is its artifact location, or empty if unknown."""
        if place and self.uri.startswith(SQLITE_PREFIX) and is_local(place):
            write_files(place, files)
            return
        with scratch_directory() as directory:
            write_files(str(directory), files)
            for name in files:
                above = str(Path(name).parent)
                folder = None if above == "." else above
                self.client.log_artifact(run_id, str(directory / name), folder)


class _Heard:
    """An MLflow client that reports every call that has returned."""

    def __init__(self, client: MlflowClient, answered: Callable[[], None]) -> None:
        self._client, self._answered = client, answered

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._client, name)

        def reported(*arguments: Any, **named: Any) -> Any:
            result = call(*arguments, **named)
            self._answered()
            return result

        return reported


def _whole_curve(outcome: TrialRecord, *, after: int) -> list[list[MetricPoint]]:
    return content.curve_rows(outcome.curve, outcome.times, after=after, whole=True)
