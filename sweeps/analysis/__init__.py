"""What a sweep's records say: intervals, comparisons, ranks, trade-offs, importance, costs."""

from sweeps.analysis.analysis import Analysis, analyse
from sweeps.analysis.comparisons import VERDICTS, Baseline, find_baseline
from sweeps.analysis.overlap import correlation_ratio
from sweeps.analysis.selection import Selection

__all__ = [
    "VERDICTS",
    "Analysis",
    "Baseline",
    "Selection",
    "analyse",
    "correlation_ratio",
    "find_baseline",
]
