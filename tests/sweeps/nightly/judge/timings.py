"""Real training times of many short nights, with load switched on and off: the costs' fixture.

::

    python -m tests.sweeps.nightly.judge.timings OUT.csv [NIGHTS]

trains the same small trials night after night in two processes, as a sweep on two cores does.
Of every six nights two are quiet, two have other processes on the cores all the time or half
of it, and two are quiet with training really made slower: every fifth batch is trained twice.
``timings.csv`` and, a day later, ``timings_held_out.csv`` were measured on two cores that others
shared, by right of way (``nice``, and the session's ``/proc/PID/autogroup``): in quiet nights
caches and clock rates were still those of a machine at work.
"""

from __future__ import annotations

import csv
import itertools
import multiprocessing as mp
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import torch

from calibration.training import TrainingRun
from sweeps.engine.cell import Cells
from sweeps.engine.identity import TrialConfig
from sweeps.engine.trial import TrialRun
from sweeps.spec import read_spec
from sweeps.store import Store, TrialRecord

SPEC = """\
name: timed
datasets: [blobs-1.7, digits]
model: {name: mlp, widths: [64]}
training: {epochs: 30, batch_size: 64, evaluate_every: 10}
methods:
  standard: {lr: 0.01, weight_decay: 0}
  focal: {lr: 0.01, weight_decay: 0, gamma: 2.0}
  bo4sc:
    {lr: 0.01, weight_decay: 0, inner_steps: 5, outer_lr: 10.0, sharpness: 30.0}
confirm_seeds: 4
"""
KINDS = ("quiet", "slower", "loaded", "quiet", "slower", "switched")
COLUMNS = ("night", "kind", "dataset", "row", "seed", "seconds", "cpu_seconds")
COLUMNS += ("reference", "busy")


def main(out: Path, nights: int) -> None:
    """Measure so many nights of every kind's share and write them."""
    with mp.get_context("spawn").Pool(2) as workers, out.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        _night(workers, "quiet")  # imports, allocations
        for night, kind in zip(range(nights), itertools.cycle(KINDS), strict=False):
            with _load(kind):
                for row in _night(workers, kind):
                    writer.writerow({"night": night, "kind": kind, **row})
            file.flush()


def _night(workers: Pool, kind: str) -> list[dict[str, Any]]:
    loaded = read_spec(SPEC, Path("timed.yaml"), Path.cwd())
    make = Cells(loaded)
    cells = [make.cell(dataset, row) for dataset in loaded.datasets for row in loaded.spec.methods]
    trials = [
        (cell.row, make.confirm_trial(cell, dict(loaded.spec.space(cell.row).fixed), seed).config)
        for seed in range(loaded.spec.confirm_seeds)
        for cell in cells
    ]
    with tempfile.TemporaryDirectory() as store:
        tasks = [(row, config, store, kind == "slower") for row, config in trials]
        return workers.starmap(_timed, tasks, chunksize=1)


def _timed(row: str, config: TrialConfig, store: str, slower: bool) -> dict[str, Any]:
    torch.set_num_threads(1)
    evaluation = read_spec(SPEC, Path("timed.yaml"), Path.cwd()).spec.evaluation
    trial = _Unevaluated(config, Store(store), calibrators=[], evaluation=evaluation, paced=True)
    usual = TrainingRun._windows
    if slower:
        TrainingRun._windows = _every_fifth_twice(usual)  # type: ignore[method-assign]
    try:
        trial.advance(600)
    finally:
        TrainingRun._windows = usual  # type: ignore[method-assign]
    assert trial.run is not None
    assert trial.pace is not None
    times = trial.pace.times
    return {
        "dataset": config.dataset_name,
        "row": row,
        "seed": config.seed,
        "seconds": round(trial.run.seconds, 4),
        "cpu_seconds": round(trial.cpu_seconds, 4),
        "reference": round(times.cpu_seconds / times.repeats, 6),
        "busy": round(times.seconds / times.cpu_seconds, 3),
    }


class _Unevaluated(TrialRun):
    def _evaluate(self, record: TrialRecord) -> None:
        """That takes longer than the training, and is not what is timed."""


def _every_fifth_twice(usual: Any) -> Any:
    count = itertools.count()

    def windows(run: TrainingRun, generator: torch.Generator) -> Iterator[Any]:
        for window in usual(run, generator):
            if next(count) % 5 == 0:
                yield window
            yield window

    return windows


@contextmanager
def _load(kind: str) -> Iterator[None]:
    """Other work on the cores: none, all the time, or every other second."""
    if kind in ("quiet", "slower"):
        yield
        return
    context = mp.get_context("spawn")
    others = [context.Process(target=_burn, args=(kind == "switched",)) for _ in range(3)]
    for each in others:
        each.start()
    time.sleep(1)
    try:
        yield
    finally:
        for each in others:
            each.kill()
            each.join()


def _burn(switched: bool) -> None:
    torch.set_num_threads(1)
    values = torch.rand(400, 400)
    parent = os.getppid()
    while os.getppid() == parent:
        end = time.monotonic() + 1
        while time.monotonic() < end:
            values = torch.softmax(values @ values, 1)
        if switched:
            time.sleep(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 24)
