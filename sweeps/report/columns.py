"""The columns of a leaderboard, and their order: the deciding metric comes first."""

from __future__ import annotations

from collections.abc import Iterable

from calibration.metrics import METRICS, Shown
from sweeps.analysis.selection import CHOSEN_BY

DECIDING = CHOSEN_BY.removeprefix("validation/")
"""The metric by which rows are ordered and chosen, on validation data."""
DECIDING_TITLE = f"validation {METRICS.title(DECIDING)}"
DECIDING_HEAD = f"val. {METRICS.title(DECIDING)}"
"""A shorter heading where space is scarce."""


def deciding_first(metrics: Iterable[str]) -> list[str]:
    """The deciding metric, next to its validation value, then the others."""
    return sorted(metrics, key=lambda metric: metric != DECIDING)


def by_importance() -> list[str]:
    """All metrics: the deciding one, then by the first place that shows them, then as listed."""
    ranked = sorted(METRICS.names(Shown.FILE), key=lambda metric: METRICS[metric].shown)
    return deciding_first(ranked)
