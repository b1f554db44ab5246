"""A sqlite tracking database: created atomically, with whole runs inserted in one transaction.

MLflow's client takes four calls and some 70 ms of CPU for a finished trial, nearly all of it for
converting 250 numbers to objects and back; inserting the same rows directly takes a few. Several
trials may end per second on the cores that train them. So for the one schema known here, a new
run's rows are written as the client would write them (a test compares the tables), and runs are
looked up in the same way; any other database, and any change to an existing run, goes through
the client.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from calibration.leftovers import remove_leftovers
from sweeps.host.scratch import directory_in
from sweeps.tracking.mlflow.database_file import SCHEMA_REVISION, check_database_file, database_path

SQLITE_PREFIX = "sqlite:///"
_DRAFT = ".mlflow-"
BUSY_SECONDS = 60.0
RUN = (
    "INSERT INTO runs (run_uuid, name, source_type, source_name, entry_point_name, user_id, "
    "status, start_time, end_time, source_version, lifecycle_stage, artifact_uri, experiment_id) "
    "VALUES (?, ?, 'UNKNOWN', '', '', 'unknown', ?, ?, ?, '', 'active', ?, ?)"
)
_TAG = "INSERT INTO tags (run_uuid, key, value) VALUES (?, ?, ?)"
PARAMETER = "INSERT INTO params (run_uuid, key, value) VALUES (?, ?, ?)"
METRIC = (
    "INSERT OR IGNORE INTO metrics (run_uuid, key, value, timestamp, step, is_nan) "
    "VALUES (?, ?, ?, ?, ?, 0)"
)
LATEST = (
    "INSERT INTO latest_metrics (run_uuid, key, value, timestamp, step, is_nan) "
    "VALUES (?, ?, ?, ?, ?, 0)"
)


class MetricPoint(NamedTuple):
    """One value of one metric; ``time`` in milliseconds."""

    name: str
    value: float
    time: int
    step: int


def create_database(uri: str) -> None:
    """Make sure that a sqlite database, if ``uri`` names one, exists and is complete.

    MLflow builds a new database in place by dozens of migrations; if they are killed half-way, or
    run by two processes at once, the database cannot be opened again. So it is built under
    another name and linked to its own in one step; of two processes, the second uses the first's.
    Leftovers of killed processes are removed. Raises ``UserError`` for an existing file that is
    not a tracking database, which is left untouched.
    """
    path = database_path(uri)
    if path is None:
        return
    remove_leftovers(path.parent, _DRAFT)
    check_database_file(uri)
    if path.exists():
        return
    from mlflow.tracking import MlflowClient

    path.parent.mkdir(parents=True, exist_ok=True)
    with directory_in(path.parent, _DRAFT) as directory:
        draft = directory / path.name
        MlflowClient(tracking_uri=f"{SQLITE_PREFIX}{draft}").search_experiments(max_results=1)
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            return
        except OSError:  # a file system without links
            if not path.exists():
                draft.replace(path)


@dataclass(frozen=True)
class FinishedRun:
    """The complete content of a run."""

    run_id: str
    name: str
    status: str
    start: int
    end: int
    tags: Mapping[str, str]
    parameters: Mapping[str, str]
    points: Iterable[MetricPoint]


class FoundRun(NamedTuple):
    """An existing run: its id, artifact location, status and tags."""

    run_id: str
    artifacts: str
    status: str
    tags: Mapping[str, str]


class Database:
    """Finds runs in a sqlite database and inserts finished ones; for the thread that opened it."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path.resolve()

    @classmethod
    def open(cls, uri: str) -> Database | None:
        """The database behind ``uri``; None if it has another kind or schema."""
        path = database_path(uri)
        if path is None or not path.is_file():
            return None
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        connection.execute("PRAGMA foreign_keys = ON")
        try:
            revisions = connection.execute("SELECT version_num FROM alembic_version").fetchall()
        except sqlite3.DatabaseError:
            revisions = []
        if revisions != [(SCHEMA_REVISION,)]:
            connection.close()
            return None
        return cls(connection, path)

    def runs(self, experiment: str, tags: Sequence[str]) -> list[FoundRun]:
        """An experiment's runs that are not deleted, with those of their ``tags``."""
        wanted = ", ".join("?" * len(tags))
        rows = self._connection.execute(
            "SELECT run_uuid, artifact_uri, status, tags.key, tags.value "
            "FROM runs JOIN tags USING (run_uuid) WHERE experiment_id = ? "
            f"AND lifecycle_stage = 'active' AND tags.key IN ({wanted})",
            (int(experiment), *tags),
        )
        found: dict[str, FoundRun] = {}
        for run_id, artifacts, status, key, value in rows:
            run = found.setdefault(run_id, FoundRun(run_id, artifacts, status, {}))
            found[run_id] = run._replace(tags={**run.tags, key: value})
        return list(found.values())

    def tag(self, tags: Mapping[str, Mapping[str, str]]) -> None:
        """Set tags of existing runs: all of them or, if ``sqlite3.Error`` is raised, none."""
        rows = [(run_id, *item) for run_id, named in tags.items() for item in named.items()]
        with self._transaction() as connection:
            connection.executemany(f"{_TAG} ON CONFLICT DO UPDATE SET value = excluded.value", rows)

    def new_id(self, *parts: str) -> str:
        """An id for a run: the same for the same parts, unless a run, even a deleted one, has it.

        So the files that a killed process wrote for its run are reused by the next attempt.
        """
        place = str(self._path)
        words = (json.dumps([place, *parts, number]) for number in itertools.count())
        ids = (hashlib.sha256(word.encode()).hexdigest()[:32] for word in words)
        return next(run_id for run_id in ids if not self._knows(run_id))

    def _knows(self, run_id: str) -> bool:
        found = self._connection.execute("SELECT 1 FROM runs WHERE run_uuid = ?", (run_id,))
        return found.fetchone() is not None

    def insert(self, experiment: str, artifacts: str, run: FinishedRun) -> None:
        """Insert a whole run or, if ``sqlite3.Error`` is raised, nothing."""
        run_id, points = run.run_id, list(run.points)
        latest: dict[str, MetricPoint] = {}
        for point in points:
            known = latest.get(point.name)
            if known is None or _order(point) > _order(known):
                latest[point.name] = point
        about = (run_id, run.name, run.status, run.start, run.end, artifacts, int(experiment))
        tags = {**run.tags, "mlflow.runName": run.name}
        with self._transaction() as connection:
            connection.execute(RUN, about)
            connection.executemany(_TAG, ((run_id, *tag) for tag in tags.items()))
            connection.executemany(PARAMETER, ((run_id, *item) for item in run.parameters.items()))
            connection.executemany(METRIC, ((run_id, *point) for point in points))
            connection.executemany(LATEST, ((run_id, *point) for point in latest.values()))

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _order(point: MetricPoint) -> tuple[int, int, float]:
    """The order by which MLflow determines the latest value."""
    return point.step, point.time, point.value
