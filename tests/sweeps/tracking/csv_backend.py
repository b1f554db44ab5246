"""Another tracking backend, as a package of somebody else's might bring it: two CSV files."""

from __future__ import annotations

import csv
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from sweeps.analysis import Analysis
from sweeps.engine.cell import PlannedTrial
from sweeps.engine.plan import Plan

HEAD = ["key", "dataset", "row", "phase", "seed", "status", "nll", "epochs"]


class CsvSession:
    """``trials.csv`` has a line per trial, ``sweep.csv`` one with how the sweep ended."""

    def __init__(self, directory: Path, plan: Plan, answered: Callable[[], None]) -> None:
        self.directory = directory
        self.plan = plan
        self.answered = answered
        self.published = 0
        self.open = True
        self.lines: dict[str, list[str]] = {}
        if (directory / "trials.csv").exists():
            with (directory / "trials.csv").open(newline="") as file:
                self.lines = {line[0]: line for line in list(csv.reader(file))[1:]}

    def publish(self, trial: PlannedTrial) -> None:
        found = self.plan.store.outcome(self.plan.spec.name, trial.study_id, trial.key)
        if found is not None:
            nll, epochs = found.validation.get("nll", ""), found.epochs
            self.published += self._put(trial, found.status, nll, epochs)

    def publish_live(self, trial: PlannedTrial) -> None:
        live = self.plan.store.live(trial.key)
        if live and live["curve"]:
            self._put(trial, "running", "", int(live["curve"][-1]["epoch"]))

    def publish_sweep(self, summary: str, analysis: Analysis | None = None) -> None:
        rows = 0 if analysis is None else len(analysis.leaderboard)
        self._write("sweep.csv", [["ended", summary.splitlines()[0], rows]])

    def interrupt(self) -> None:
        self._write("sweep.csv", [["interrupted"]])
        self.open = False

    def _put(self, trial: PlannedTrial, *outcome: object) -> bool:
        config = trial.config
        about = (trial.key, *trial.cell, config.phase, config.seed, *outcome)
        line = [str(value) for value in about]
        changed = self.lines.get(trial.key) != line
        self.lines[trial.key] = line
        self._write("trials.csv", [HEAD, *self.lines.values()])
        return changed

    def _write(self, name: str, lines: list[list[object]] | list[list[str]]) -> None:
        with (self.directory / name).open("w", newline="") as file:
            csv.writer(file).writerows(lines)
        self.answered()


class CsvBackend:
    answers_always = True

    def __init__(self, directory: Path, plan: Plan) -> None:
        self.place = str(directory)
        self.connect = lambda answered: CsvSession(directory, plan, answered)

    def settings(self) -> AbstractContextManager[object]:
        return nullcontext()

    def reason(self, error: Exception) -> str:
        return str(error)
