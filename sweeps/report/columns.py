"""Which numbers a leaderboard shows, and in which order: what decides comes first."""

from __future__ import annotations

from collections.abc import Iterable

from calibration.metrics import METRICS, Shown
from sweeps.analysis.selection import CHOSEN_BY

DECIDING = CHOSEN_BY.removeprefix("validation/")
"""The metric that rows are ordered and chosen by, on validation data."""
DECIDING_TITLE = f"validation {METRICS.title(DECIDING)}"
DECIDING_HEAD = f"val. {METRICS.title(DECIDING)}"
"""Where there is little room."""


def deciding_first(metrics: Iterable[str]) -> list[str]:
    """The metric that decides, beside which its validation value belongs, then the others."""
    return sorted(metrics, key=lambda metric: metric != DECIDING)


def by_importance() -> list[str]:
    """All metrics: what decides, then by the first place that shows them, then as listed."""
    ranked = sorted(METRICS.names(Shown.FILE), key=lambda metric: METRICS[metric].shown)
    return deciding_first(ranked)
