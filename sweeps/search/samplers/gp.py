"""Bayesian optimisation with a Gaussian process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sweeps.search.samplers.sampler import SAMPLERS, STARTUP_TRIALS, Sampler

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


@SAMPLERS.register("gp")
class GP(Sampler):
    """A Gaussian process of the objective; the next point promises the most improvement."""

    description = "Bayesian optimisation with a Gaussian process: for few, costly trials"
    keeps_notes = False
    startup = STARTUP_TRIALS
    most_trials = 300

    def make(self, seed: int) -> BaseSampler:
        """Optuna's ``GPSampler``."""
        from optuna.samplers import GPSampler

        return GPSampler(
            seed=seed, n_startup_trials=STARTUP_TRIALS, warn_independent_sampling=False
        )

    def related(self) -> list[str]:
        """All that every trial has."""
        return self.always()
