"""The sweep's own run, and the marks on other runs and the experiment at the sweep's end."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd

from sweeps.analysis import Analysis
from sweeps.engine.environment import environment
from sweeps.tracking.mlflow import sweep_content
from sweeps.tracking.mlflow.run_content import COLOUR, SUPERSEDED, milliseconds
from sweeps.tracking.mlflow.run_marks import chosen_marks
from sweeps.tracking.mlflow.views import views

if TYPE_CHECKING:
    from sweeps.tracking.mlflow.publisher import Publisher

ChosenMarks = Mapping[tuple[str, str], Mapping[str, str]]
"""Tags by dataset and row."""
KIND = "mlflow.experimentKind"
"""MLflow's UI has two kinds of experiments, and assumes the other one by default."""


def publish_results(publisher: Publisher, summary: str, analysis: Analysis | None) -> None:
    """Publish the sweep's run (files, table, description, metrics), the runs' marks, the views."""
    leaderboard = pd.DataFrame() if analysis is None else analysis.leaderboard
    publisher.store_artifacts(publisher.parent, "", _files(publisher, leaderboard))
    tags = sweep_content.sweep_tags(publisher.plan, summary)
    if not leaderboard.empty:
        listed = [{"path": sweep_content.TABLE, "type": "table"}]
        tags[sweep_content.TABLES] = json.dumps(listed)
    _describe(publisher, tags, sweep_content.winner_metrics(leaderboard))
    _mark_runs(publisher, {} if analysis is None else chosen_marks(publisher.plan, analysis))
    _save_views(publisher)


def _files(publisher: Publisher, leaderboard: pd.DataFrame) -> dict[str, bytes]:
    store, sweep = publisher.store, publisher.sweep
    names = {*store.files(sweep), *store.files(sweep, "figures")}
    files = {name: store.read_file(sweep, name) for name in sorted(names)}
    datasets = publisher.plan.loaded.datasets
    about = environment() | {"fingerprints": {n: d.fingerprint for n, d in datasets.items()}}
    files["environment.json"] = json.dumps(about, indent=1, sort_keys=True).encode()
    if not leaderboard.empty:
        files[sweep_content.TABLE] = sweep_content.table_json(leaderboard)
    return {name: data for name, data in files.items() if data is not None}


def _describe(publisher: Publisher, tags: Mapping[str, str], metrics: Mapping[str, float]) -> None:
    from mlflow.entities import Metric, RunTag

    known = publisher.client.get_run(publisher.parent).data
    now = milliseconds(time.time())
    new = {n: value for n, value in metrics.items() if known.metrics.get(n) != value}
    changed = {n: value for n, value in tags.items() if known.tags.get(n) != value}
    publisher.client.log_batch(
        publisher.parent,
        metrics=[Metric(name, value, now, 0) for name, value in new.items()],
        tags=[RunTag(*item) for item in changed.items()],
    )


def _mark_runs(publisher: Publisher, chosen: ChosenMarks) -> None:
    """Tag the confirmed runs with the selection, and those no longer in the plan as superseded."""
    planned = {trial.key: trial for trial in publisher.plan.trials.values()}
    marks: dict[str, dict[str, str]] = {}
    for key, run in publisher.runs.items():
        trial = planned.get(key)
        wanted: dict[str, str] = {}
        if trial is None:
            wanted = {SUPERSEDED: "true"}
        elif trial.config.phase == "confirm":
            wanted = dict(chosen.get(trial.cell, {}))
            if COLOUR in run.marks:  # ours, or one that a user has chosen instead
                wanted.pop(COLOUR, None)
        if trial is not None and SUPERSEDED in run.marks:
            publisher.client.delete_tag(run.run_id, SUPERSEDED)
            run.marks = {n: value for n, value in run.marks.items() if n != SUPERSEDED}
        if not wanted.items() <= run.marks.items():
            marks[run.run_id] = wanted
            run.marks = {**run.marks, **wanted}
    if publisher.database is not None:
        publisher.database.tag(marks)
        return
    for run_id, tags in marks.items():
        for name, value in tags.items():
            publisher.client.set_tag(run_id, name, value)


def _save_views(publisher: Publisher) -> None:
    known = publisher.client.get_experiment(publisher.experiment).tags
    # For nightly sweeps the number of views would grow without bound.
    for view in views(publisher.plan) if publisher.parent_run is None else ():
        value = view.saved(known.get(view.tag))
        if value is not None:
            publisher.client.set_experiment_tag(publisher.experiment, view.tag, value)
    if KIND not in known:
        kind = "custom_model_development"
        publisher.client.set_experiment_tag(publisher.experiment, KIND, kind)
