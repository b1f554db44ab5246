"""The covariance matrix adaptation evolution strategy (Hansen 2016)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calibration.hyperparameters import Choice
from sweeps.search.samplers.sampler import SAMPLERS, Sampler

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


@SAMPLERS.register("cmaes")
class CMAES(Sampler):
    """A normal distribution that moves and takes shape from generation to generation."""

    description = "CMA-ES: a normal distribution, adapted in generations; choices at random"
    several_objectives = False

    def make(self, seed: int) -> BaseSampler:
        """Optuna's ``CmaEsSampler``."""
        from optuna.samplers import CmaEsSampler

        return CmaEsSampler(seed=seed, warn_independent_sampling=False)

    def related(self) -> list[str]:
        """The numbers that every trial has: with another dimension it would stop learning."""
        return [n for n in self.always() if not isinstance(self.space.searched[n], Choice)]
