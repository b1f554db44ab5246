"""Which search trials are stopped early: the rungs, and Optuna's rules at them.

A trial is judged at its rungs only, by the best validation NLL it has reached so far, and
the rules keep what they know in the study's trials: reporting the curves of the records
again restores them.
"""

from __future__ import annotations

import optuna

from sweeps.schema import SchedulerConfig

# The median of fewer finished trials says little.
MEDIAN_STARTUP = 5
# Every rung costs the driver a report with the whole curve.
MOST_RUNGS = 100


def rungs(config: SchedulerConfig, epochs: int) -> list[int]:
    """The epochs, before the last, at which the scheduler wants to hear of a trial.

    ``asha``: grace, grace · reduction, grace · reduction², …; ``median``: every multiple of
    grace, at most a hundred; nothing for ``none``.
    """
    grace = _grace(config, epochs)
    if config.name == "median":
        every = max(grace, -(-epochs // MOST_RUNGS))
        return list(range(every, epochs, every))
    found = []
    while config.name == "asha" and grace < epochs:
        found.append(grace)
        grace *= config.reduction
    return found


def pruner(config: SchedulerConfig, epochs: int) -> optuna.pruners.BasePruner:
    """The rule at the rungs.

    ``asha`` is asynchronous successive halving (Li et al. 2020): a trial goes on if it is
    among the best 1/reduction of all that have reached the rung, or the very best while
    they are too few; so the first one always goes on. ``median`` stops a trial whose best
    value is worse than the median that finished trials had at the same rung.
    """
    if config.name == "asha":
        return optuna.pruners.SuccessiveHalvingPruner(
            min_resource=_grace(config, epochs), reduction_factor=config.reduction
        )
    if config.name == "median":
        return optuna.pruners.MedianPruner(n_startup_trials=MEDIAN_STARTUP)
    return optuna.pruners.NopPruner()


def _grace(config: SchedulerConfig, epochs: int) -> int:
    return config.grace or max(1, epochs // 10)
