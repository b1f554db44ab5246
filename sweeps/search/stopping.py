"""When search trials are judged: at rungs, by the best validation NLL reached so far."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence

from sweeps.search.config import SchedulerConfig

# Every rung costs the driver a report with the whole curve.
MOST_RUNGS = 100


def rungs(config: SchedulerConfig, epochs: int) -> list[int]:
    """The epochs, before the last, at which the scheduler judges a trial.

    ``asha``: grace, grace · reduction, grace · reduction², …; ``median``: every multiple of
    grace, at most a hundred; nothing for ``none``.
    """
    grace = grace_epochs(config, epochs)
    if config.name == "median":
        every = max(grace, -(-epochs // MOST_RUNGS))
        return list(range(every, epochs, every))
    found = []
    while config.name == "asha" and grace < epochs:
        found.append(grace)
        grace *= config.reduction
    return found


def grace_epochs(config: SchedulerConfig, epochs: int) -> int:
    """How many epochs every trial has before it is judged."""
    return config.grace or max(1, epochs // 10)


def rung_values(curve: Sequence[Mapping[str, float]], rungs: Sequence[int]) -> dict[int, float]:
    """The best validation NLL so far at every rung that the curve has reached."""
    values: dict[int, float] = {}
    best = math.inf
    waiting = deque(rungs)
    for row in curve:
        best = min(best, float(row.get("validation/nll", math.inf)))
        while waiting and row["epoch"] >= waiting[0]:
            rung = waiting.popleft()
            if math.isfinite(best):
                values[rung] = best
    return values
