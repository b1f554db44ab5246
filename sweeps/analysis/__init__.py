"""Analysis of a sweep's records: intervals, comparisons, ranks, trade-offs, importance, costs."""

from sweeps.analysis.analysis import Analysis, analyse
from sweeps.analysis.comparisons import Baseline, find_baseline
from sweeps.analysis.selection import Selection
from sweeps.analysis.verdicts import VERDICTS

__all__ = [
    "VERDICTS",
    "Analysis",
    "Baseline",
    "Selection",
    "analyse",
    "find_baseline",
]
