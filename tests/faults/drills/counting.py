"""Everything a finished sweep consists of, to be compared with the same sweep left alone."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from tests.faults.drills.outcome import Violation
from tests.faults.kit import Scene

HEX = re.compile(r"[0-9a-f]{32}")
RUNS = (
    "SELECT run_uuid, tags.value, status FROM runs JOIN tags USING (run_uuid) "
    "WHERE tags.key = 'calsweep.key' AND lifecycle_stage = 'active'"
)


@dataclass(frozen=True)
class Result:
    """A finished sweep without its times and random names.

    ``epochs`` are those of each record's curve, ``runs`` counts MLflow's runs by (key, status),
    the sweep's own among them, ``points`` the values in MLflow by (key, metric, step), and
    ``files`` what lies in the store.
    """

    epochs: dict[str, list[int]]
    runs: Counter[tuple[str, str]]
    points: Counter[tuple[str, str, int]]
    files: Counter[str]
    leaderboard: pd.DataFrame


def result_of(scene: Scene) -> Result:
    """What the scene's store and its sqlite database hold."""
    with closing(sqlite3.connect(scene.root / "mlflow.db")) as database:
        runs = database.execute(RUNS).fetchall()
        points = database.execute("SELECT run_uuid, key, step FROM metrics").fetchall()
    keys = {run_id: key for run_id, key, _ in runs}
    return Result(
        epochs={
            key: [row["epoch"] for row in record.curve] for key, record in scene.records().items()
        },
        runs=Counter((key, status) for _, key, status in runs),
        points=Counter(
            (keys[run], name, step)
            for run, name, step in points
            if run in keys and name != "train_seconds"  # only of those that were trained alone
        ),
        files=Counter(_plain_names(scene.root, keys)),
        leaderboard=scene.leaderboard(),
    )


def _plain_names(root: Path, keys: dict[str, str]) -> Iterator[str]:
    """The paths of all files, with a run's key for its id and one name for every attempt's."""
    for path in root.rglob("*"):
        if not path.is_file():
            continue
        head, *rest = path.relative_to(root).parts
        if head == "mlartifacts":
            rest = [keys.get(part, "of-no-run") if HEX.fullmatch(part) else part for part in rest]
        if head == "records":
            rest = [rest[0], *("attempt" if HEX.fullmatch(part) else part for part in rest[1:])]
        yield "/".join([head, *rest])


def differences(calm: Result, found: Result) -> Iterator[Violation]:
    """What is missing, twice there, too much or otherwise than in the calm sweep."""
    for name, ours, theirs in (
        ("records", Counter(list(found.epochs)), Counter(list(calm.epochs))),
        ("MLflow runs", found.runs, calm.runs),
        ("points of MLflow's curves", found.points, calm.points),
    ):
        if theirs - ours:
            yield Violation("lost", f"{name}: {_few(theirs - ours)}")
        if ours - theirs:
            yield Violation("doubled", f"{name}: {_few(ours - theirs)}")
    for key in calm.epochs.keys() & found.epochs.keys():
        if calm.epochs[key] != found.epochs[key]:
            yield Violation("wrong", f"epochs of {key}: {found.epochs[key]}")
    if calm.files - found.files:
        yield Violation("lost", f"files: {_few(calm.files - found.files)}")
    if found.files - calm.files:
        yield Violation("left over", f"files in the store: {_few(found.files - calm.files)}")
    if not calm.leaderboard.equals(found.leaderboard):
        yield Violation(
            "wrong", f"the leaderboard: {_changed(calm.leaderboard, found.leaderboard)}"
        )


def _changed(calm: pd.DataFrame, found: pd.DataFrame) -> str:
    """In which cells two leaderboards differ, or that they have other rows or columns."""
    if calm.shape != found.shape or list(calm) != list(found):
        return f"{found.shape} instead of {calm.shape}"
    cells = [
        f"{column} of row {row}: {theirs!r} instead of {ours!r}"
        for column in calm
        for row, ours, theirs in zip(calm.index, calm[column], found[column], strict=True)
        if ours != theirs and not (pd.isna(ours) and pd.isna(theirs))
    ]
    return f"{len(cells)} cells, such as {'; '.join(cells[:3])}"


def _few(counted: Counter) -> str:
    words = ", ".join(str(item) for item in sorted(counted, key=str)[:3])
    return f"{counted.total()}, such as {words}"


def assert_same(calm: Result, found: Result) -> None:
    """Nothing lost, doubled, left over or otherwise than in the calm sweep."""
    different = [f"{kind}: {what}" for kind, what in differences(calm, found)]
    assert not different, "; ".join(different)
