"""What can be said from a few seeds: intervals, paired tests, ranks, fronts. Arrays in, values out.

Nothing here knows of sweeps; ``sweeps.analysis`` says which numbers are compared.
"""

from sweeps.statistics.fronts import hypervolume, pareto_front
from sweeps.statistics.intervals import half_width, mean_interval
from sweeps.statistics.paired import PairedTest, corrected_t_test, holm
from sweeps.statistics.ranks import Ranks, critical_difference, ranks

__all__ = [
    "PairedTest",
    "Ranks",
    "corrected_t_test",
    "critical_difference",
    "half_width",
    "holm",
    "hypervolume",
    "mean_interval",
    "pareto_front",
    "ranks",
]
