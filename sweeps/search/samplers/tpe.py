"""The tree-structured Parzen estimator (Bergstra et al. 2011)."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from sweeps.search.samplers.sampler import SAMPLERS, STARTUP_TRIALS, Sampler

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


@SAMPLERS.register("tpe")
class TPE(Sampler):
    """Densities of the good and of the other trials; the next point has the best ratio."""

    description = "tree-structured Parzen estimator: densities of good and of other trials"
    keeps_notes = False
    startup = STARTUP_TRIALS

    def make(self, seed: int) -> BaseSampler:
        """Optuna's ``TPESampler``; it groups hyperparameters that are searched together."""
        from optuna.exceptions import ExperimentalWarning
        from optuna.samplers import TPESampler

        # With several objectives TPE treats hyperparameters one by one and needs no groups.
        grouped = bool(self.space.conditions) and self.objectives == 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            return TPESampler(seed=seed, n_startup_trials=STARTUP_TRIALS, group=grouped)
