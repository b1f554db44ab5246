"""Another tracking backend, as somebody else's package might contain it: two CSV files."""

from __future__ import annotations

import csv
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from sweeps.analysis import Analysis
from sweeps.engine.cell import PlannedTrial
from sweeps.engine.plan import Plan


class CsvSession:
    """``trials.csv`` has a line per trial, ``sweep.csv`` one with how the sweep ended."""

    def __init__(self, directory: Path, plan: Plan, answered: Callable[[], None]) -> None:
        self.directory, self.plan, self.answered = directory, plan, answered
        self.published, self.open = 0, True
        self.lines = {"key": ["key", "dataset", "row", "phase", "seed", "status", "nll", "epochs"]}
        if (path := directory / "trials.csv").exists():
            self.lines = {line[0]: line for line in csv.reader(path.read_text().splitlines())}

    def publish(self, trial: PlannedTrial) -> None:
        if found := self.plan.store.outcome(self.plan.spec.name, trial.study_id, trial.key):
            nll = found.validation.get("nll", "")
            self.published += self._put(trial, found.status, nll, found.epochs)

    def publish_live(self, trial: PlannedTrial) -> None:
        if (live := self.plan.store.live(trial.key)) and live["curve"]:
            self._put(trial, "running", "", int(live["curve"][-1]["epoch"]))

    def publish_sweep(self, summary: str, analysis: Analysis | None = None) -> None:
        rows = 0 if analysis is None else len(analysis.leaderboard)
        self._write("sweep.csv", [["ended", summary.splitlines()[0], str(rows)]])

    def interrupt(self) -> None:
        self._write("sweep.csv", [["interrupted"]])
        self.open = False

    def _put(self, trial: PlannedTrial, *outcome: object) -> bool:
        about = (trial.key, *trial.cell, trial.config.phase, trial.config.seed, *outcome)
        before, line = self.lines.get(trial.key), [str(value) for value in about]
        self.lines[trial.key] = line
        self._write("trials.csv", list(self.lines.values()))
        return before != line

    def _write(self, name: str, lines: list[list[str]]) -> None:
        with (self.directory / name).open("w", newline="") as file:
            csv.writer(file).writerows(lines)
        self.answered()


class CsvBackend:
    answers_always, settings, reason = True, staticmethod(nullcontext), staticmethod(str)

    def __init__(self, directory: Path, plan: Plan) -> None:
        self.place = str(directory)
        self.connect = lambda answered: CsvSession(directory, plan, answered)
