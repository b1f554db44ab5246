"""Whether members of a cohort train faster together or one by one, measured while they train.

The two ways alternate until each has been timed for a few epochs. Both give the same numbers, and
every epoch counts, so measuring costs only the extra time of the slower way.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Hashable

import torch

TIMED = 2
"""Epochs timed per way; the fastest of each is compared, as the machine may be busy."""
EPOCH_TIMES: dict[Hashable, EpochTimes] = {}
"""The times measured in this process, keyed by what determines how long an epoch takes."""


class EpochTimes:
    """Seconds per epoch and member; epochs with a validation are counted separately."""

    def __init__(self) -> None:
        self._seen: defaultdict[tuple[bool, bool], list[float]] = defaultdict(list)

    def add(self, seconds: float, *, together: bool, looked: bool) -> None:
        """Record an epoch."""
        self._seen[looked, together].append(seconds)

    @property
    def compared(self) -> tuple[float, float] | None:
        """The fastest epoch together and one by one; None until enough have been timed."""
        for looked in (False, True):
            ways = [self._seen[looked, together] for together in (True, False)]
            if all(len(times) >= TIMED for times in ways):
                return min(ways[0]), min(ways[1])
        return None

    @property
    def together_next(self) -> bool:
        """Whether to train the next epoch together."""
        if self.compared is not None:
            together, alone = self.compared
            return together < alone
        # In pairs: if every second epoch is validated, each way gets epochs of both kinds.
        return sum(map(len, self._seen.values())) // TIMED % 2 == 0

    @property
    def reason(self) -> str:
        """Why members train one by one; empty if they train together."""
        if self.compared is None or self.together_next:
            return ""
        together, alone = (1000 * seconds for seconds in self.compared)
        return (
            f"training one by one is faster: an epoch takes {alone:.3g} ms alone, and "
            f"{together:.3g} ms per member together"
        )


def times_of(kind: Hashable, members: int) -> EpochTimes:
    """The times of companies of this kind and of about this size."""
    return EPOCH_TIMES.setdefault((kind, members.bit_length()), EpochTimes())


def clock(device: torch.device) -> float:
    """CPU seconds of this thread, unaffected by other load; for GPUs, wall-clock seconds."""
    return time.thread_time() if device.type == "cpu" else time.perf_counter()


def gain(members: int, *, multiplications: float, rows: int, by_hand: bool) -> float:
    """Estimated time of a step of ``members`` networks together, relative to one by one.

    Indicates, before anything is measured, whether a cohort is worth trying.

    ``multiplications``: those of one network's forward pass of a batch of ``rows``. ``by_hand``:
    the network is ``dense`` and the method has ``steps_together``; otherwise it goes through vmap,
    whose calls cost more and whose products of large batches do not fit into the cache. Based on
    microseconds of one core, fitted to the shapes of ``tests/benchmarks/bench_cohorts.py``: only
    ratios matter.
    """
    work = 65e-6 * multiplications + 0.25 * rows
    calls, shared_calls, slower = (300, 400, 1.0) if by_hand else (450, 3000, 2.0)
    return (shared_calls / members + slower * work) / (calls + work)
