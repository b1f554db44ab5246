"""How a search chooses its next trial: ``SAMPLERS`` by name, one file each.

Nothing here imports Optuna before a sampler is made: reading a sweep does not need it.
"""

from sweeps.search.samplers import cmaes, gp, grid, nsga2, random, tpe
from sweeps.search.samplers.sampler import SAMPLERS, Sampler, SamplerError

__all__ = ["SAMPLERS", "Sampler", "SamplerError", "cmaes", "gp", "grid", "nsga2", "random", "tpe"]
