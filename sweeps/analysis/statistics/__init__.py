"""Statistics of a few seeds: intervals, paired tests, ranks, fronts. Arrays in, values out.

Nothing here knows about sweeps; ``sweeps.analysis`` decides which numbers are compared.
"""

from sweeps.analysis.statistics.change_points import ChangePoint, change_point, change_points
from sweeps.analysis.statistics.crossed import (
    Estimate,
    by_group,
    crossed_binned,
    crossed_means,
    over_seeds,
    quantum_variance,
)
from sweeps.analysis.statistics.equivalence import Claims, claim_probabilities, claim_tests
from sweeps.analysis.statistics.fronts import hypervolume, pareto_front
from sweeps.analysis.statistics.intervals import half_width, mean_interval
from sweeps.analysis.statistics.looks import ALPHA, SPENT, look_factor, protected
from sweeps.analysis.statistics.paired import (
    PairedTest,
    corrected_t_test,
    effect_size,
    holm,
    noisy_t_test,
    spread_test,
)
from sweeps.analysis.statistics.planning import Needed, needed
from sweeps.analysis.statistics.ranks import Ranks, critical_difference, ranks
from sweeps.analysis.statistics.trend import MannKendall, distinct_runs, mann_kendall

__all__ = [
    "ALPHA",
    "SPENT",
    "ChangePoint",
    "Claims",
    "Estimate",
    "MannKendall",
    "Needed",
    "PairedTest",
    "Ranks",
    "by_group",
    "change_point",
    "change_points",
    "claim_probabilities",
    "claim_tests",
    "corrected_t_test",
    "critical_difference",
    "crossed_binned",
    "crossed_means",
    "distinct_runs",
    "effect_size",
    "half_width",
    "holm",
    "hypervolume",
    "look_factor",
    "mann_kendall",
    "mean_interval",
    "needed",
    "noisy_t_test",
    "over_seeds",
    "pareto_front",
    "protected",
    "quantum_variance",
    "ranks",
    "spread_test",
]
