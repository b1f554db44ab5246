"""What can be said from a few seeds: intervals, paired tests, ranks, fronts. Arrays in, values out.

Nothing here knows of sweeps; ``sweeps.analysis`` says which numbers are compared.
"""

from sweeps.analysis.statistics.fronts import hypervolume, pareto_front
from sweeps.analysis.statistics.intervals import half_width, mean_interval
from sweeps.analysis.statistics.paired import (
    PairedTest,
    corrected_t_test,
    holm,
    noisy_t_test,
    spread_test,
)
from sweeps.analysis.statistics.ranks import Ranks, critical_difference, ranks
from sweeps.analysis.statistics.trend import MannKendall, distinct_runs, mann_kendall

__all__ = [
    "MannKendall",
    "PairedTest",
    "Ranks",
    "corrected_t_test",
    "critical_difference",
    "distinct_runs",
    "half_width",
    "holm",
    "hypervolume",
    "mann_kendall",
    "mean_interval",
    "noisy_t_test",
    "pareto_front",
    "ranks",
    "spread_test",
]
