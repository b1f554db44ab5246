"""Random search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sweeps.search.samplers.sampler import SAMPLERS, Sampler

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


@SAMPLERS.register("random")
class Random(Sampler):
    """Every hyperparameter on its own, evenly over its domain."""

    description = "random search"
    learns = False
    keeps_notes = False

    def make(self, seed: int) -> BaseSampler:
        """Optuna's ``RandomSampler``."""
        from optuna.samplers import RandomSampler

        return RandomSampler(seed=seed)
