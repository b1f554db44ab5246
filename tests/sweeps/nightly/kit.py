"""Nights of a small suite, trained in this process: what Ray would do, without Ray, in seconds."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from sweeps.engine import pace
from sweeps.engine.plan import Options, Plan
from sweeps.engine.trial import TrialRun
from sweeps.nightly.archive.nights import Nights
from sweeps.nightly.judge.verdict import Verdict
from sweeps.nightly.run.night import Night, run_night
from sweeps.nightly.run.suite import load_suite
from sweeps.nightly.run.tracking_uri import tracking_uri
from sweeps.spec import LoadedSpec
from sweeps.store import Store
from sweeps.sweep import SPEC, saved_state
from tests.tracked import empty_database
from tests.trained import no_pictures

FIRST, SECOND, THIRD = "2026-01-05", "2026-01-06", "2026-01-07"
# Nobody judges here how long a training of half a second takes.
SUITE = """\
name: small
sweeps: [sweeps/paper.yaml, sweeps/searched.yaml]
judge: {level: 0.05, minimum: {ece: 0.01, nll: 0.02, error: 0.01}, cost: 1000.0}
"""
# Trained for so long that a temperature, and BO4SC's weights, have something to mend.
PAPER = """\
name: paper
datasets: [blobs-1.7]
model: {name: mlp, widths: [64, 64]}
protocol: bo4sc
methods:
  standard: {lr: 0.02, weight_decay: 0}
  bo4sc: {lr: 0.02, weight_decay: 0, inner_steps: 5, outer_lr: 10.0, sharpness: 30.0}
training: {epochs: 300, batch_size: full, stop_on: none, evaluate_every: 100}
confirm_seeds: 8
calibrators: [temperature]
"""
SEARCHED = """\
name: searched
datasets: [iris]
model: {name: mlp, widths: [8]}
methods:
  focal: {lr: 0.05, weight_decay: 0, gamma: [1, 2]}
training: {epochs: 20, batch_size: full, evaluate_every: 10}
search: {sampler: grid}
confirm_seeds: 3
calibrators: [temperature]
"""


class StoppedError(Exception):
    """What ends a night in the middle of its training."""


class Scene:
    """A directory with a suite, and the nights that are run there without Ray.

    ``told`` is what the last night said; ``limit`` ends a night after so many trials, of which
    each takes ``pause`` seconds longer than it must.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.told: list[str] = []
        self.limit = 10_000
        self.pause = 0.0
        self.trained: list[str] = []
        self.parent: str | None = None
        self.nights = Nights(directory / "nights", "small", str(directory / "small.yaml"))

    def write_suite(self, **sweeps: str) -> None:
        """The suite with the sweeps of these names."""
        for name, text in sweeps.items():
            self.write(f"sweeps/{name}.yaml", text)
        listed = ", ".join(f"sweeps/{name}.yaml" for name in sweeps)
        self.write("small.yaml", SUITE.replace("sweeps/paper.yaml, sweeps/searched.yaml", listed))

    def write(self, name: str, text: str) -> None:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(self, date: str, *, tracking: str | None = None, limit: float | None = None) -> Verdict:
        """Run a night or resume it."""
        self.told, self.trained = [], []
        database = self.nights.directory / "mlflow.db"
        if not database.exists():
            database.parent.mkdir(parents=True, exist_ok=True)
            database.write_bytes(empty_database())
        return run_night(
            Night(
                suite=load_suite(self.directory / "small.yaml"),
                nights=self.nights,
                date=date,
                tell=self.told.append,
                train=self._train,
                tracking=tracking_uri(self.nights, tracking),
                limit=limit,
            )
        )

    def verdict(self, date: str) -> dict[str, Any]:
        """What ``verdict.json`` of a night says."""
        path = self.nights.place(date) / "verdict.json"
        found: dict[str, Any] = json.loads(path.read_bytes())
        return found

    def _train(self, loaded: LoadedSpec, store: Store, parent: str | None, again: bool) -> None:
        self.parent = parent
        store.write_file(loaded.spec.name, SPEC, loaded.text.encode())
        store.write_state(loaded.spec.name, saved_state(loaded, store))
        plan = Plan(loaded, store, Options(retry_failed=again))
        plan.replay()
        while (trial := plan.next()) is not None:
            if len(self.trained) >= self.limit:
                raise StoppedError("the power went off")
            self.trained.append(trial.key)
            time.sleep(self.pause)
            calibrators, evaluation = plan.spec.calibrator_names, plan.spec.evaluation
            attempt = TrialRun(
                trial.config, store, calibrators=calibrators, evaluation=evaluation, paced=True
            )
            with no_pictures():
                assert attempt.advance(600)
            plan.complete(trial.key)


def worse(verdict: Verdict) -> set[tuple[str, ...]]:
    """Method, calibrator and metric of everything that a night calls worse."""
    lines = verdict.lines[verdict.lines["verdict"] == "worse"]
    return set(map(tuple, lines[["row", "calibrator", "metric"]].to_numpy()))


def reference_takes(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """A piece of reference work takes so long, and no time."""
    monkeypatch.setattr(pace, "_timed", lambda device: (seconds, seconds))
