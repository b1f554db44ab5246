"""Three hundred very short trials: the driver's memory, descriptors and threads stay flat."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.faults.drills.launching import DONE_SECONDS, Launch
from tests.faults.drills.outcome import Outcome, Setting, judged
from tests.faults.kit import Scene
from tests.faults.leftovers import short_directory

TRIALS = 300
SPEC = f"""\
datasets: [blobs-1.7]
model: {{name: mlp, widths: [8]}}
methods:
  standard: {{lr: {{loguniform: [0.01, 0.1]}}, weight_decay: 0}}
training: {{epochs: 2, batch_size: full, evaluate_every: 1}}
search: {{sampler: random, trials: {TRIALS}, seed: 5}}
confirm_seeds: 1
calibrators: []
"""
SECONDS = 0.5
MEGABYTES, DESCRIPTORS, THREADS = 40, 6, 3
"""By so much the median of the last third may lie above that of the first."""


class Sample(NamedTuple):
    """What the driver holds at a moment; ``memory`` in megabytes."""

    records: int
    memory: float
    descriptors: int
    threads: int


def many_trials(setting: Setting) -> Iterator[Outcome]:
    """One sweep, looked at while it trains."""
    return judged(f"{TRIALS} very short trials", setting.directory / "many", _watch)


def _watch(place: Path) -> str:
    scene = Scene(place, SPEC, temporary=short_directory())
    try:
        launch = Launch(scene)
        samples = list(_samples(launch))
        code = launch.end()
        assert code == 0, f"ended {code}: {launch.said[-2000:]}"
        scene.assert_exact(TRIALS + 1, [1, 2], {"FINISHED"})
    finally:
        scene.trace.remove()
    third = len(samples) // 3
    assert third >= 3, f"only {len(samples)} samples: it was over too soon"
    early, late = _median(samples[:third]), _median(samples[-third:])
    told = (
        f"memory {early.memory:.0f} → {late.memory:.0f} MB, descriptors {early.descriptors:.0f} → "
        f"{late.descriptors:.0f}, threads {early.threads:.0f} → {late.threads:.0f} "
        f"over {len(samples)} samples"
    )
    assert late.memory - early.memory <= MEGABYTES, f"memory grows: {told}"
    assert late.descriptors - early.descriptors <= DESCRIPTORS, f"descriptors grow: {told}"
    assert late.threads - early.threads <= THREADS, f"threads grow: {told}"
    return told


def _samples(launch: Launch) -> Iterator[Sample]:
    """From the tenth record, when everything has been loaded, to the last."""
    driver = psutil.Process(launch.process.pid)
    deadline = time.monotonic() + DONE_SECONDS
    while launch.running and time.monotonic() < deadline:
        done = len(list((launch.scene.root / "records").glob("*/record.json")))
        if done >= TRIALS:
            return
        if done >= 10:
            with driver.oneshot():
                memory = driver.memory_info().rss / 2**20
                yield Sample(done, memory, driver.num_fds(), driver.num_threads())
        time.sleep(SECONDS)


def _median(samples: list[Sample]) -> Sample:
    return Sample(*map(statistics.median, zip(*samples, strict=True)))
