"""How long a trial would train, measured here and now; nothing is stored.

Every cell of a spec trains for a moment at several points of its course (what a method does
may begin after a warm-up), and the time is scaled to all its epochs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from itertools import cycle
from statistics import median

from calibration.data import Dataset, Splits
from calibration.hyperparameters import Domain, Value
from calibration.learners import Estimator, make_learner
from calibration.methods import Method
from calibration.threads import threads
from calibration.training import TrainingRun
from calibration.training_config import TrainingConfig
from sweeps.engine.dry_run import few, start_estimator, start_run
from sweeps.engine.embedding import stand_in
from sweeps.search.domains import points
from sweeps.spec import LoadedSpec
from sweeps.spec.schema import Spec

MEASURED_SECONDS = 0.15
SLOW_SECONDS = 1.0
VALIDATION_ROWS = 1000
# The shares of all epochs at which is measured, and how much of them each represents. The middle
# comes first: a slow cell gets no further.
MOMENTS = {0.5: 0.3, 0.05: 0.1, 0.25: 0.25, 0.75: 0.25, 0.95: 0.1}
FORWARD_SHARE = 1 / 3
"""A forward pass costs about half a backward pass."""
ALL_ROWS = 10**12
ESTIMATOR_ROWS = 1000
MEASURED_ROUNDS = 20
COURSE = 100_000
"""Epochs of a measured run: only the share that lies behind matters, never the number."""


def estimate(loaded: LoadedSpec) -> dict[tuple[str, str], float]:
    """Seconds that one trial trains at most, by dataset and row: all epochs, nothing stopped.

    Searched hyperparameters are in the middle of their domains. NaN where a row cannot be run here.
    """
    spec = loaded.spec
    return {
        (name, row): seconds
        for name, dataset in loaded.datasets.items()
        for row, seconds in _rows(spec, dataset)
    }


def _rows(spec: Spec, dataset: Dataset) -> Iterator[tuple[str, float]]:
    parts: dict[bool, Splits] = {}
    for row in spec.methods:
        space = spec.space(row)
        middle = {
            hyperparameter: _middle(domain) for hyperparameter, domain in space.searched.items()
        }
        chosen = space.fixed | middle
        if "freeze_epochs" in chosen:  # epochs that train the head alone are shorter
            chosen["freeze_epochs"] = 0
        try:
            method = make_learner(spec.methods[row].method, chosen)
            held_out = method.needs_held_out
            if held_out not in parts:
                parts[held_out] = dataset.split(spec.protocol, spec.seed, held_out=held_out)
            config = spec.row_training(row)
            splits = parts[held_out]
            with threads(config.threads):
                if isinstance(method, Estimator):
                    seconds = _estimator_seconds(spec, method, dataset, splits, config)
                else:
                    seen = stand_in(spec.model, splits)
                    seconds = _Cell(spec, method, dataset.classes, seen, config).seconds()
        except Exception:  # a user's own method may raise anything; check --try reports it
            seconds = math.nan
        yield row, seconds


def _middle(domain: Domain) -> Value:
    values = points(domain, 1)
    return values[len(values) // 2]


def _estimator_seconds(
    spec: Spec, estimator: Estimator, dataset: Dataset, splits: Splits, config: TrainingConfig
) -> float:
    """Training time of all rounds, from more and more rows, until that takes a moment."""
    every = len(splits.train.labels)
    used = min(every, ESTIMATOR_ROWS)
    while True:
        shorter = few(splits, train=used, validation=VALIDATION_ROWS, held_out=0)
        run = start_estimator(spec, estimator, dataset, shorter, config)
        # Of the process: a library may train in a thread of its own.
        clock = time.process_time if config.threads == 1 else time.perf_counter
        start = clock()
        run.run_epoch()
        # Some fit several rounds before they report the first.
        while run.epoch < min(estimator.rounds, MEASURED_ROUNDS):
            run.run_epoch()
        taken = clock() - start
        if taken > MEASURED_SECONDS or used == every:
            return taken * every / used * estimator.rounds / run.epoch
        used = min(every, 4 * used)


class _Cell:
    """What is trained, and in how many steps."""

    def __init__(
        self, spec: Spec, method: Method, classes: int, splits: Splits, config: TrainingConfig
    ) -> None:
        self.spec, self.method, self.classes = spec, method, classes
        self.splits, self.config = splits, config
        rows, size = len(splits.train.labels), config.batch_size
        whole = size == "full" or size >= rows
        self.window_rows = rows if whole else method.window * int(size)
        self.windows = math.ceil(rows / self.window_rows)
        # With full batches run_epoch makes a pass for every step of the method's window.
        self.calls = config.epochs / (method.window if whole else 1)
        due = math.ceil(config.epochs / config.evaluate_every)
        self.evaluations = min(math.ceil(self.calls), due)

    def seconds(self) -> float:
        """Training time of all epochs, validation included."""
        run = self._run(1)
        once = _timed(run, 0.5)
        if once < SLOW_SECONDS:  # the first time includes one-off setup
            once = _timed(run, 0.5)
        if once > MEASURED_SECONDS:
            training, validation = once * self.windows, self._guessed_validation(once)
        else:
            used = int(MEASURED_SECONDS / (2 * len(MOMENTS)) / max(once, 1e-6))
            used = min(max(used, 1), self.windows)
            run = self._run(used) if used > 1 else run
            seen = _moments(run)
            training = self.windows / used * sum(seen[m] * share for m, share in MOMENTS.items())
            validation = self._validation(run, seen[0.5], self._guessed_validation(once))
        return self.calls * training + self.evaluations * validation

    def _run(self, windows: int) -> TrainingRun:
        """A training whose epoch has this many windows of batches."""
        rows = windows * self.window_rows
        splits = few(
            self.splits,
            train=rows,
            validation=VALIDATION_ROWS,
            # A method may look at all of it after every epoch: as much as belongs to the windows.
            held_out=ALL_ROWS if windows == self.windows else rows,
        )
        course = {"epochs": COURSE, "evaluate_every": 2 * COURSE, "patience": None}
        config = self.config.model_copy(update=course)
        return start_run(self.spec, self.method, self.classes, splits, config)

    def _guessed_validation(self, window: float) -> float:
        return window * FORWARD_SHARE * len(self.splits.validation.labels) / self.window_rows

    def _validation(self, run: TrainingRun, without: float, guess: float) -> float:
        scale = len(self.splits.validation.labels) / len(run.validation.labels)
        if guess / scale > MEASURED_SECONDS / 5:
            return guess
        run.config = run.config.model_copy(update={"evaluate_every": 1})
        further = median(_timed(run, 0.5) for _ in range(5)) - without
        return scale * max(further, 0.0)


def _moments(run: TrainingRun) -> dict[float, float]:
    """Median seconds of an epoch at every moment, as far as there is time for it."""
    seen: dict[float, list[float]] = {moment: [] for moment in MOMENTS}
    end = time.perf_counter() + MEASURED_SECONDS
    for moment in cycle(MOMENTS):
        seen[moment].append(_timed(run, moment))
        if time.perf_counter() >= end:
            break
    return {moment: median(seen[moment] or seen[0.5]) for moment in MOMENTS}


def _timed(run: TrainingRun, moment: float) -> float:
    # What else keeps the machine busy now need not do so during the sweep.
    alone = run.config.threads == 1 and run.device.type == "cpu"
    clock = time.thread_time if alone else time.perf_counter
    run.epoch = int(moment * COURSE)
    start = clock()
    run.run_epoch()
    return clock() - start
