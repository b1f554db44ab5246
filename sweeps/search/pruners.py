"""Which search trials are stopped early: Optuna's rules at the rungs.

The rules keep their state in the study's trials: reporting the recorded curves again restores it.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, cast

import optuna
from optuna.trial import FrozenTrial, TrialState

from sweeps.search.config import SchedulerConfig
from sweeps.search.stopping import grace_epochs

# The median of fewer finished trials says little.
MEDIAN_STARTUP = 5


def pruner(
    config: SchedulerConfig, epochs: int, batch: int | None = None
) -> optuna.pruners.BasePruner:
    """The rule at the rungs; in a search with rounds of ``batch``, as ``InRounds`` applies it.

    ``asha`` is asynchronous successive halving (Li et al. 2020): a trial continues if it is
    among the best 1/reduction of all that have reached the rung, or the very best while they are
    too few; so the first one always continues. ``median`` stops a trial whose best value is worse
    than the median of finished trials at the same rung.
    """
    rule = _rule(config, epochs)
    return rule if batch is None else InRounds(rule, batch)


def _rule(config: SchedulerConfig, epochs: int) -> optuna.pruners.BasePruner:
    if config.name == "asha":
        return optuna.pruners.SuccessiveHalvingPruner(
            min_resource=grace_epochs(config, epochs), reduction_factor=config.reduction
        )
    if config.name == "median":
        return optuna.pruners.MedianPruner(n_startup_trials=MEDIAN_STARTUP)
    return optuna.pruners.NopPruner()


class InRounds(optuna.pruners.BasePruner):
    """A rule that compares a trial with those of earlier rounds only.

    They have all ended when a round begins, so that it does not matter who of a round reaches a
    rung first: decisions are the same with any number of workers, and in cohorts.
    """

    def __init__(self, rule: optuna.pruners.BasePruner, size: int) -> None:
        self.rule, self.size = rule, size

    def prune(self, study: optuna.study.Study, trial: FrozenTrial) -> bool:
        """Whether the rule stops the trial, given what earlier rounds have reached."""
        earlier = _Before(study, trial.number // self.size * self.size)
        return self.rule.prune(cast("optuna.study.Study", earlier), trial)


class _Before:
    """A study as it was before the trial number ``end``."""

    def __init__(self, study: optuna.study.Study, end: int) -> None:
        self._of, self._end = study, end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)

    def get_trials(
        self, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        found = self._of.get_trials(deepcopy=deepcopy, states=states)
        return [trial for trial in found if trial.number < self._end]
