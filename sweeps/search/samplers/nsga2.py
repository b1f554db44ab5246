"""The genetic algorithm NSGA-II (Deb et al. 2002)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sweeps.search.samplers.sampler import SAMPLERS, Sampler

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

# A constant, because a raised budget must continue with the same suggestions.
POPULATION = 16


@SAMPLERS.register("nsga2")
class NSGA2(Sampler):
    """Crossover and mutation of the trials that no other dominates."""

    description = "NSGA-II, a genetic algorithm: for several objectives and many trials"

    def make(self, seed: int) -> BaseSampler:
        """Optuna's ``NSGAIISampler``."""
        from optuna.samplers import NSGAIISampler

        return NSGAIISampler(seed=seed, population_size=POPULATION)

    def related(self) -> list[str]:
        """All that every trial has."""
        return self.always()
