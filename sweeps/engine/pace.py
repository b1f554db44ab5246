"""How fast the machine was while a trial trained: reference work, interleaved with its epochs."""

from __future__ import annotations

import time
from functools import lru_cache

import torch

from sweeps.engine.reference_work import VERSION, ReferenceWork
from sweeps.store import ReferenceTimes

EVERY_SECONDS = 0.2
"""A trial's own CPU time between two units of reference work, of about 10 ms each."""


class Pace:
    """Does reference work now and then during one trial, and adds up the time it takes.

    ``times`` are the sums so far; a trial continued from a checkpoint passes on its own.
    """

    def __init__(self, device: str, times: ReferenceTimes | None = None) -> None:
        self._device = device
        self.times = times or ReferenceTimes(version=VERSION)
        self._due = 0.0

    def keep(self, worked: float) -> None:
        """Measure if it is time to: ``worked`` are the CPU seconds that the trial has trained."""
        if worked < self._due:
            return
        self._due = worked + EVERY_SECONDS
        cpu, wall = _timed(self._device)
        before = self.times
        self.times = ReferenceTimes(
            version=VERSION,
            repeats=before.repeats + 1,
            cpu_seconds=before.cpu_seconds + cpu,
            seconds=before.seconds + wall,
        )


def _timed(device: str) -> tuple[float, float]:
    """CPU seconds and seconds of one unit; on a GPU, until it is done."""
    work = _work(device)
    _wait(device)
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    _wait(device)
    return time.process_time() - cpu, time.perf_counter() - wall


@lru_cache(maxsize=2)
def _work(device: str) -> ReferenceWork:
    work = ReferenceWork(device)
    work()  # the first time is slower: memory is allocated, kernels are chosen
    return work


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
