"""Whether members of a cohort train faster together or one by one, measured while they train.

Epochs of both ways alternate until each was timed a few times: all of them count, and both come to
the same numbers, so that measuring costs only what the slower way takes longer.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Hashable

import torch

TIMED = 2
"""Epochs of either way that are compared; the faster of them, as the machine may be busy."""
EPOCH_TIMES: dict[Hashable, EpochTimes] = {}
"""What was measured in this process, by what decides how long an epoch takes."""


class EpochTimes:
    """Seconds per epoch and member. Those in which validation rows are looked at are apart."""

    def __init__(self) -> None:
        self._seen: defaultdict[tuple[bool, bool], list[float]] = defaultdict(list)

    def add(self, seconds: float, *, together: bool, looked: bool) -> None:
        """Take note of an epoch."""
        self._seen[looked, together].append(seconds)

    @property
    def compared(self) -> tuple[float, float] | None:
        """The fastest epoch together and one by one; None while too few were timed."""
        for looked in (False, True):
            ways = [self._seen[looked, together] for together in (True, False)]
            if all(len(times) >= TIMED for times in ways):
                return min(ways[0]), min(ways[1])
        return None

    @property
    def together_next(self) -> bool:
        """Whether the next epoch is to be trained together."""
        if self.compared is not None:
            together, alone = self.compared
            return together < alone
        # Two by two: where every second epoch is looked at, either way has some of both sorts.
        return sum(map(len, self._seen.values())) // TIMED % 2 == 0

    @property
    def reason(self) -> str:
        """Why members train one by one; empty if they do not."""
        if self.compared is None or self.together_next:
            return ""
        together, alone = (1000 * seconds for seconds in self.compared)
        return (
            f"training one by one is faster: an epoch takes {alone:.3g} ms alone, and "
            f"{together:.3g} ms per member together"
        )


def times_of(kind: Hashable, members: int) -> EpochTimes:
    """Those of companies of one kind and about one size."""
    return EPOCH_TIMES.setdefault((kind, members.bit_length()), EpochTimes())


def clock(device: torch.device) -> float:
    """Seconds of this thread, whatever else keeps the machine busy; on GPUs those of the wall."""
    return time.thread_time() if device.type == "cpu" else time.perf_counter()


def gain(members: int, *, multiplications: float, rows: int, by_hand: bool) -> float:
    """About what share of the time one by one a step of ``members`` networks together takes.

    To see, before anything is measured, whether a cohort is worth a try.

    ``multiplications``: of one network's forward pass of a batch of ``rows``. ``by_hand``: the
    network is ``dense`` and the method has ``steps_together``; otherwise it goes through vmap,
    whose calls are dearer and whose products of large batches leave the cache. Microseconds of
    one core, fitted to the shapes of ``tests/benchmarks/bench_cohorts.py``: ratios matter.
    """
    work = 65e-6 * multiplications + 0.25 * rows
    calls, shared_calls, slower = (300, 400, 1.0) if by_hand else (450, 3000, 2.0)
    return (shared_calls / members + slower * work) / (calls + work)
