"""Which search trials are stopped early: Optuna's rules at the rungs.

The rules keep their state in the study's trials: reporting the recorded curves again restores it.
"""

from __future__ import annotations

import optuna

from sweeps.search.config import SchedulerConfig
from sweeps.search.stopping import grace_epochs

# The median of fewer finished trials says little.
MEDIAN_STARTUP = 5


def pruner(config: SchedulerConfig, epochs: int) -> optuna.pruners.BasePruner:
    """The rule at the rungs.

    ``asha`` is asynchronous successive halving (Li et al. 2020): a trial continues if it is
    among the best 1/reduction of all that have reached the rung, or the very best while they are
    too few; so the first one always continues. ``median`` stops a trial whose best value is worse
    than the median of finished trials at the same rung.
    """
    if config.name == "asha":
        return optuna.pruners.SuccessiveHalvingPruner(
            min_resource=grace_epochs(config, epochs), reduction_factor=config.reduction
        )
    if config.name == "median":
        return optuna.pruners.MedianPruner(n_startup_trials=MEDIAN_STARTUP)
    return optuna.pruners.NopPruner()
