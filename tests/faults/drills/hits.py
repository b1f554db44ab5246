"""When a sweep is hit, and what is hit: the two lists the random kill drill draws from."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.faults.drills.launching import Launch
from tests.faults.kit import Scene


class Before(NamedTuple):
    """What there was when the run that is to be hit began."""

    records: int
    suggestions: int
    runs: int

    @classmethod
    def of(cls, scene: Scene) -> Before:
        return cls(len(scene.records()), len(scene.suggestions()), _runs(scene))


class Moment(NamedTuple):
    """A moment of a sweep, known by what lies in the store, and then up to ``spread`` seconds.

    ``ray``: Ray runs then; ``ready``: the command has heard of signals by then.
    """

    name: str
    come: Callable[[Launch, Before], object]
    spread: float = 0.5
    ray: bool = False
    ready: bool = True


def _runs(scene: Scene) -> int:
    """How many runs there are in the database, or 0 where it cannot be read at the moment."""
    path = scene.root / "mlflow.db"
    if not path.exists():
        return 0
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database,
    ):
        return int(database.execute("SELECT COUNT(*) FROM runs").fetchone()[0])
    return 0


def _new(launch: Launch, pattern: str) -> bool:
    """Whether a file of this pattern has been written since the run began."""
    return any(_written(path) >= launch.began for path in launch.scene.root.glob(pattern))


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _records(count: int) -> Callable[[Launch, Before], bool]:
    return lambda launch, before: len(launch.scene.records()) >= before.records + count


MOMENTS = (
    Moment("starting", lambda launch, before: True, spread=8.0, ready=False),
    Moment("building the database", lambda launch, before: _new(launch, ".mlflow-*/mlflow.db")),
    Moment(
        "suggesting",
        lambda launch, before: len(launch.scene.suggestions()) > before.suggestions,
        spread=3.0,
        ray=True,
    ),
    Moment("first record", _records(1), ray=True),
    Moment("third record", _records(3), ray=True),
    Moment("checkpoint", lambda launch, before: _new(launch, "records/*/live.json"), ray=True),
    Moment(
        "publishing a trial",
        lambda launch, before: _runs(launch.scene) >= before.runs + 3,
        spread=0.2,
        ray=True,
    ),
    Moment(
        "evaluating",
        lambda launch, before: _new(launch, "records/*/*/evaluations/*/*.json"),
        ray=True,
    ),
    Moment("tables", lambda launch, before: _new(launch, "*/leaderboard.csv"), spread=0.2),
    Moment("figures", lambda launch, before: _new(launch, "*/figures/*.png"), spread=1.0),
    Moment("publishing the sweep", lambda launch, before: _new(launch, "*/report.html"), 1.0),
)


class Victim(NamedTuple):
    """What is hit, and the exit code of the driver after that.

    A driver whose work is over ends with 0 all the same. ``ray``: it is there while Ray is;
    ``handled``: the command has to be ready for it.
    """

    name: str
    hit: Callable[[Launch, random.Random], bool]
    code: int
    ray: bool = False
    handled: bool = False


def _driver(number: int) -> Callable[[Launch, random.Random], bool]:
    def hit(launch: Launch, chance: random.Random) -> bool:
        launch.process.send_signal(number)
        return True

    return hit


def _twice(launch: Launch, chance: random.Random) -> bool:
    launch.process.send_signal(signal.SIGINT)
    time.sleep(chance.uniform(0.0, 0.9))
    launch.process.send_signal(signal.SIGINT)
    return True


def _group(number: int) -> Callable[[Launch, random.Random], bool]:
    """As a terminal does on Ctrl-C, or whoever ends a job with all its processes."""

    def hit(launch: Launch, chance: random.Random) -> bool:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(launch.process.pid, number)
        return True

    return hit


def _one_of(titles: Iterable[str]) -> Callable[[Launch, random.Random], bool]:
    def hit(launch: Launch, chance: random.Random) -> bool:
        found = [p for p in launch.scene.trace.processes() if _title(p).startswith(tuple(titles))]
        if not found:
            return False
        with contextlib.suppress(psutil.Error):
            chance.choice(found).kill()
        return True

    return hit


def _title(process: psutil.Process) -> str:
    """What a process calls itself: a program's name, or what Ray has made of a worker's."""
    try:
        first = process.cmdline()[0]
    except (psutil.Error, IndexError):
        return ""
    return first if first.startswith("ray::") else Path(first).name


VICTIMS = (
    Victim("driver", _driver(signal.SIGKILL), -9),
    Victim("group", _group(signal.SIGKILL), -9),
    Victim("SIGTERM", _driver(signal.SIGTERM), 143, handled=True),
    Victim("SIGINT", _driver(signal.SIGINT), 130, handled=True),
    Victim("SIGINT twice", _twice, 130, handled=True),
    Victim("Ctrl-C", _group(signal.SIGINT), 130, handled=True),
    Victim("worker", _one_of(["ray::CalibrationTrial", "ray::ResourceTrainable"]), 0, ray=True),
    Victim("raylet", _one_of(["raylet"]), 1, ray=True),
    Victim("gcs_server", _one_of(["gcs_server"]), 1, ray=True),
)

PAIRS = [
    (moment, victim)
    for moment in MOMENTS
    for victim in VICTIMS
    if (moment.ray or not victim.ray) and (moment.ready or not victim.handled)
]
