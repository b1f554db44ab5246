"""Grid search."""

from __future__ import annotations

from sweeps.search.samplers.random import Random
from sweeps.search.samplers.sampler import SAMPLERS


@SAMPLERS.register("grid")
class Grid(Random):
    """Every point of the grid; the study lists them, so nothing is drawn."""

    description = "every combination of choices and of resolution points along each range"
    is_grid = True
