"""The runs of a sweep that an MLflow server or database already has."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sweeps.tracking.mlflow.database import Database, FoundRun
from sweeps.tracking.mlflow.run_content import (
    CALIBRATOR,
    COLOUR,
    DECIDED,
    KEY,
    LINEAGE,
    PUBLISHED,
    ROW,
    ROW_PLACE,
    SUPERSEDED,
    SWEEP,
    TESTED,
    WINNER,
)

if TYPE_CHECKING:
    from mlflow.entities import Experiment
    from mlflow.tracking import MlflowClient

_MARKS = (ROW_PLACE, CALIBRATOR, WINNER, DECIDED, TESTED, COLOUR, SUPERSEDED)


@dataclass(slots=True)
class KnownRun:
    """The known state of an existing run.

    ``step``: its curve is published up to there, None if that has to be looked up;
    ``bare``: it has only its curve so far; ``marks``: its tags from the end of the sweep.
    """

    run_id: str
    artifacts: str
    status: str
    row: str
    lineage: str
    published: str = ""
    step: int | None = None
    bare: bool = False
    marks: Mapping[str, str] = field(default_factory=dict)


def open_experiment(
    client: MlflowClient, name: str, artifacts: str | None
) -> tuple[Experiment, bool]:
    """The experiment of that name, and whether it is new; ``artifacts`` is its file location."""
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            made = client.create_experiment(name, artifacts)
            return client.get_experiment(made), True
        except MlflowException:
            # Another sweep in the same experiment may have been faster.
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    return found, False


def existing_runs(
    client: MlflowClient,
    database: Database | None,
    experiment: str,
    sweep: str,
    ours: Container[str],
) -> dict[str, KnownRun]:
    """The sweep's runs by key, its own under its name.

    A request whose answer was lost may have made a second run, and so may a driver that has
    lost its lock without noticing: one of the two is deleted, and one in ``ours`` is kept.
    """
    runs: dict[str, KnownRun] = {}
    for run in list(_found(client, database, experiment, sweep)):
        if run.tags.get(SWEEP) != sweep:
            continue
        row, lineage, published = (run.tags.get(n, "") for n in (ROW, LINEAGE, PUBLISHED))
        marks = {n: run.tags[n] for n in _MARKS if n in run.tags}
        known = KnownRun(
            run.run_id, run.artifacts, run.status, row, lineage, published, marks=marks
        )
        other = runs.setdefault(run.tags[KEY], known)
        if other is not known:
            known, other = sorted(
                (known, other), key=lambda k: (k.run_id not in ours, not k.published)
            )
            runs[run.tags[KEY]] = known
            client.delete_run(other.run_id)
    return runs


def _found(
    client: MlflowClient, database: Database | None, experiment: str, sweep: str
) -> Iterator[FoundRun]:
    if database is not None:
        read = (SWEEP, KEY, ROW, LINEAGE, PUBLISHED, *_MARKS)
        yield from database.runs(experiment, read)
        return
    token: str | None = ""
    while token is not None:
        page = client.search_runs(
            [experiment],
            filter_string=f"tags.`{SWEEP}` = '{sweep}'",
            max_results=1000,
            page_token=token or None,
        )
        for run in page:
            info = run.info
            yield FoundRun(info.run_id, info.artifact_uri, info.status, run.data.tags)
        token = page.token or None
