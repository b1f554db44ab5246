"""Whether a record can be what a training left: whole files may still have been edited."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from calibration.metrics import METRICS

STATUSES = ("done", "failed", "pruned")
_ROUNDING = 1e-6


def flaw(record: Mapping[str, Any]) -> str:
    """What of a trial's record no training could have left; empty if there is nothing."""
    status = record.get("status")
    if status not in STATUSES:
        return f"its status is {status!r}"
    try:
        return _flaw(record, finished=status != "failed")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        return f"it is no record of a training ({error!r})"


def _flaw(record: Mapping[str, Any], *, finished: bool) -> str:
    if not finished and not isinstance(record.get("reason"), str):
        return "it failed for no reason"
    seconds = float(record["seconds"] if finished else record.get("seconds", 0.0))
    if not 0 <= seconds < math.inf:
        return f"it took {seconds:g} seconds"
    measured: Mapping[str, Any] = record["validation"] if finished else {}
    for name, value in measured.items():
        number = float(value)
        low, high = METRICS[name].bounds if name in METRICS else (-math.inf, math.inf)
        # What is not a number is no flaw: no search prefers it.
        if number < low - _ROUNDING or number > high + _ROUNDING:
            return f"its validation {name} is {number:g}"
    curve, times = record.get("curve", []), record.get("times", [])
    if len(times) < len(curve):
        return f"its curve has {len(curve)} epochs, but {len(times)} times"
    return _curve_flaw(curve)


def _curve_flaw(curve: Iterable[Mapping[str, Any]]) -> str:
    before = 0.0
    for row in curve:
        epoch = float(row["epoch"])
        if not before < epoch < math.inf:
            return f"its curve has epoch {epoch:g} after {before:g}"
        before = epoch
        for value in row.values():
            float(value)
    return ""
