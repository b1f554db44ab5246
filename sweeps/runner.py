"""A whole sweep, in order: plan, train, confirm, record, report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import yaml
from rich.console import Console

from calibration.threads import threads
from sweeps.analysis import Analysis
from sweeps.analysis.records import SweepRecords
from sweeps.analysis.results import failed_calibrators
from sweeps.engine.cell import PlannedTrial
from sweeps.engine.plan import Hooks, Options, Plan
from sweeps.engine.progress import Progress
from sweeps.errors import UserError
from sweeps.host.console import say
from sweeps.host.stages import stage
from sweeps.host.workspace import workspace
from sweeps.ray_backend.connection import Cluster
from sweeps.ray_backend.template import template
from sweeps.ray_backend.tune_run import train
from sweeps.report.write import write_report
from sweeps.search.journal import Journal
from sweeps.spec import LoadedSpec, load_spec, read_spec
from sweeps.spec.ready import spec_path
from sweeps.spec.tracking_uri import tracking_problem
from sweeps.status.server import StatusServer
from sweeps.store import Store
from sweeps.sweep import SPEC, Sweep, extension, records_of, saved_state
from sweeps.tracking import Recorder, sync
from sweeps.tracking.mlflow.access import check_access
from sweeps.tracking.mlflow.backend import MlflowBackend, default_uri

JOURNAL = "optuna.log"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a finished sweep."""

    plan: Plan
    records: SweepRecords
    analysis: Analysis
    tracking_uri: str
    unpublished: int
    tracking_error: str
    failed_calibrators: dict[str, str]
    table: pd.DataFrame | None
    report_failures: dict[str, str]


@threads(1)  # the workers use the cores: more threads here would compete with them
def run_sweep(
    loaded: LoadedSpec,
    store: Store,
    *,
    console: Console,
    tracking_uri: str | None = None,
    cluster: Cluster | None = None,
    retry_failed: bool = False,
    extend: int = 0,
    seeds: int = 0,
    parent_run: str | None = None,
    paced: bool = False,
    status: StatusServer | None = None,
) -> Outcome:
    """Run or continue a sweep until every trial has its record, then report.

    ``extend`` is how many trials every search has beyond the spec's, ``seeds`` how many confirm
    seeds every row has, now and later: the same number again adds none. ``parent_run`` is the
    parent of the sweep's own MLflow run. ``paced`` interleaves reference work with training, for
    nights; ``status`` serves the sweep's state. Raises ``StoreError`` if the store cannot be
    written or another process runs the sweep, ``SpecError`` if no trial fits the machine,
    ``UserError`` if MLflow refuses access, and ``BackendError`` if Ray does not start or is lost.
    """
    sweep = loaded.spec.name
    uri = _tracking(loaded, store, tracking_uri)
    cluster = cluster or Cluster()
    with (
        template(loaded) if cluster.address is None else nullcontext() as workers,
        store.lock(sweep) as lock,
        workspace() as place,
    ):
        added = extension(store, sweep).more(extend, seeds)
        store.write_file(sweep, SPEC, loaded.text.encode())
        store.write_state(sweep, saved_state(loaded, store, added))
        loaded = added.applied(loaded)
        plan = Plan(loaded, store, Options(retry_failed=retry_failed, extra=added.trials))
        recorder = Recorder(MlflowBackend(uri, plan, store, parent_run))
        plan.hooks = Hooks(done=recorder.submit)
        summary: str | None = None
        analysis: Analysis | None = None
        try:
            with stage("replay"):
                plan.replay()
            with (
                _journal(plan, store, place) as journal,
                Progress(plan, console) as progress,
                status.showing(plan) if status else nullcontext(),
            ):

                def ended(trial: PlannedTrial) -> None:
                    progress.update(trial)
                    if status is not None:
                        status.event()

                plan.hooks = Hooks(
                    asked=lambda cell, number: journal.asked(cell.name, cell.study, number),
                    told=lambda cell, number: journal.told(cell.name, cell.study, number),
                    started=recorder.started,
                    done=recorder.submit,
                )
                train(
                    plan,
                    store,
                    cluster=cluster,
                    on_event=ended,
                    still_ours=lock.ensure,
                    tell=lambda words: say(console, words),
                    workspace=place,
                    template=workers,
                    paced=paced,
                )
            looked = added.looked(plan.spec)
            if looked != added:  # before it is reported: every look must be counted
                store.write_state(sweep, saved_state(loaded, store, looked))
            records = records_of(plan, looked.look(plan.spec))
            with stage("report"):
                written = write_report(records, store)
            summary, analysis = written.summary, written.analysis
        finally:
            # If interrupted, it should end soon: the next run publishes the rest.
            patience = 5.0 if summary is None else 20.0
            with stage("waiting for MLflow"):
                unpublished = recorder.close(
                    summary, analysis, patience=patience, tell=lambda words: say(console, words)
                )
        return Outcome(
            plan,
            records,
            written.analysis,
            uri,
            unpublished,
            recorder.error,
            failed_calibrators=failed_calibrators(records),
            table=written.table,
            report_failures=written.failures,
        )


class Synced(NamedTuple):
    """How many trials were published, and where; what of the report failed, and why."""

    published: int
    tracking: str
    report_failures: dict[str, str]


@threads(1)
def sync_sweep(loaded: LoadedSpec, store: Store, tracking_uri: str | None = None) -> Synced:
    """Publish a sweep's records, and write its report again.

    Raises ``UserError`` if the store has nothing of it, ``TrackingError`` if MLflow refuses.
    """
    sweep = Sweep(loaded, store)  # raises if there is none
    uri = _tracking(loaded, store, tracking_uri)
    with store.lock(sweep.name):
        plan = Plan(sweep.loaded, store, Options(extra=sweep.extension.trials))
        plan.replay()
        written = write_report(records_of(plan, sweep.extension.look(sweep.spec)), store)
        backend = MlflowBackend(uri, plan, store)
        published = sync(backend, plan.trials.values(), written.summary, written.analysis)
        return Synced(published, uri, written.failures)


def _tracking(loaded: LoadedSpec, store: Store, given: str | None) -> str:
    """The tracking URI. Raises ``UserError`` if MLflow would refuse access."""
    spec = loaded.spec
    uri = given or spec.tracking.uri or default_uri(store)
    check_access(uri, spec.tracking.experiment or spec.name)
    return uri


@contextmanager
def _journal(plan: Plan, store: Store, place: Path) -> Iterator[Journal]:
    """The sweep's studies as optuna-dashboard reads them."""
    sweep = plan.spec.name
    path = (place if store.local is None else store.local / sweep) / JOURNAL
    journal = Journal(path)
    journal.rebuild({cell.name: cell.study for cell in plan.cells.values()})
    try:
        yield journal
    finally:
        if store.local is None and path.exists():
            store.write_file(sweep, JOURNAL, path.read_bytes())


def run_spec(
    spec: str | Path | Mapping[str, Any],
    *,
    store: str | Path,
    tracking: str | None,
    address: str | None,
) -> Sweep:
    """Run a sweep without output; see ``sweeps.run``."""
    loaded = _loaded(spec)
    problem = None if tracking is None else tracking_problem(tracking)
    if problem is not None:
        raise UserError(f"tracking: {problem}")
    place = Store(store)
    run_sweep(
        loaded,
        place,
        console=Console(quiet=True),
        tracking_uri=tracking,
        cluster=Cluster(address),
    )
    return Sweep(loaded, place)


def _loaded(spec: str | Path | Mapping[str, Any]) -> LoadedSpec:
    if isinstance(spec, Mapping):
        text = yaml.safe_dump(dict(spec), sort_keys=False, allow_unicode=True)
        return read_spec(text, Path("spec"), Path.cwd())
    return load_spec(spec_path(Path(spec)))
