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
        """Optuna's ``TPESampler``, multivariate for one objective; with groups for conditions."""
        from optuna.exceptions import ExperimentalWarning
        from optuna.samplers import TPESampler

        # What Optuna 5 does by default; Optuna 4 has to be told. Treated one by one, as with
        # several objectives, hyperparameters need no groups.
        multivariate = self.objectives == 1
        grouped = bool(self.space.conditions) and multivariate
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            return TPESampler(
                seed=seed,
                n_startup_trials=STARTUP_TRIALS,
                multivariate=multivariate,
                group=grouped,
            )
