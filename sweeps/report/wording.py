"""The format of numbers and names in texts about results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from calibration.text import count
from sweeps.analysis.wording import listed, number, quoted

__all__ = [
    "DAGGER",
    "bounds",
    "convergence_note",
    "count",
    "dagger",
    "ensemble_note",
    "interval",
    "listed",
    "number",
    "p_value",
    "quoted",
    "seconds",
]

DAGGER = "†"


def dagger(row: Mapping[str, Any] | pd.Series) -> str:
    """The mark after the name of a row whose calibrator did not converge, else ""."""
    return "" if row["converged"] >= 1 else f" {DAGGER}"


def convergence_note(converged: Iterable[float]) -> str:
    """The meaning of the mark, if any of the rows has it."""
    if all(share >= 1 for share in converged):
        return ""
    return (
        f" {DAGGER} a fit of the calibrator did not converge; one that made NLL worse on its own "
        "data was left out."
    )


def ensemble_note(ensembles: pd.DataFrame) -> str:
    """An explanation of ensembles, if there are any."""
    if ensembles.empty:
        return ""
    return (
        " An ensemble is the mean probability of a row's networks, each calibrated on its own "
        "validation rows; ±: jackknife standard error over its members. It costs all their "
        "trainings, and as many networks per prediction. It is neither tested nor chosen: "
        "other members were trained on a member's validation rows."
    )


def interval(row: pd.Series, metric: str) -> str:
    """``[0.019, 0.031]``, or "" if there is no interval."""
    low, high = bounds(row, metric)
    return "" if math.isnan(low) or math.isnan(high) else f"[{low:.3f}, {high:.3f}]"


def bounds(row: pd.Series, metric: str) -> tuple[float, float]:
    """The 95 % interval of a leaderboard row's metric; NaN if there is none."""
    return (
        float(row.get(f"{metric}_ci_low", math.nan)),
        float(row.get(f"{metric}_ci_high", math.nan)),
    )


def p_value(p: float) -> str:
    """``p = 0.004``, or "" if there is none."""
    if math.isnan(p):
        return ""
    if p < 0.001:
        return "p < 0.001"
    if p > 0.995:
        return "p = 1"
    if 0.0495 <= p < 0.05:  # rounded, it would look not significant
        return "p < 0.05"
    return f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def seconds(value: float) -> str:
    """A duration with two or three digits: ``0.45 s``, ``12.3 s``, ``8.1 min``, ``3.2 h``."""
    if math.isnan(value):
        return "–"
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if value >= 2 * size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"
