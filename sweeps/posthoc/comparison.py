"""Is a calibrator better than none? Paired over the test rows, by resampling them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy import stats

from calibration.metrics.bootstrap import Resampled
from sweeps.analysis.comparisons import UNMEASURED
from sweeps.analysis.statistics import holm

_ALPHA = 0.05
_ROUNDING = 1e-12
UNCALIBRATED = "identity"


def comparisons(
    calibrators: Mapping[str, Mapping[str, Resampled]], dataset: str, method: str, rows: int
) -> pd.DataFrame:
    """Every calibrator against ``identity`` in every metric both have.

    With values on the same resamples of the rows, the standard error of the difference is the
    deviation s of the differences (Efron and Tibshirani 1993); difference/s is compared with
    Student's t of rows − 1 degrees of freedom, two-sided, and the p-values of one metric are
    corrected after Holm. Resampling adds the same noise to both, so that of two calibration
    errors the smaller is overstated the more: the test is cautious. ``effect`` is the
    difference over its deviation from row to row, s·√rows.
    """
    lines = []
    baseline = calibrators.get(UNCALIBRATED, {})
    for metric in baseline:
        there = {name: found[metric] for name, found in calibrators.items() if metric in found}
        tested = [_compared(found, baseline[metric], rows) for found in there.values()]
        frame = pd.DataFrame(tested)
        frame.insert(0, "metric", metric)
        frame.insert(0, "calibrator", list(there))
        known = [name != UNCALIBRATED for name in there]
        adjusted = np.full(len(there), np.nan)
        adjusted[known] = holm(frame["p"].to_numpy(np.float64)[known])
        frame["p_holm"] = adjusted
        frame["verdict"] = [
            "baseline" if name == UNCALIBRATED else verdict(mean, reference, p)
            for name, mean, reference, p in zip(
                there, frame["mean"], frame["baseline_mean"], adjusted, strict=True
            )
        ]
        lines.append(frame)
    if not lines:
        return pd.DataFrame()
    table = pd.concat(lines, ignore_index=True)
    table.insert(0, "row", method)
    table.insert(0, "dataset", dataset)
    return table


def verdict(mean: float, baseline: float, p: float) -> str:
    """In words, lower being better; an infinite loss is worse than any, whatever the rows."""
    if math.isnan(mean) or math.isnan(baseline):
        return UNMEASURED
    infinite = math.isinf(mean), math.isinf(baseline)
    # Two infinite losses have no difference to test; an infinite one needs no test.
    if mean == baseline or (not any(infinite) and not p < _ALPHA):
        return "no difference shown"
    return "better" if mean < baseline else "worse"


def _compared(ours: Resampled, baseline: Resampled, rows: int) -> dict[str, float]:
    mean, reference = float(ours.estimate), float(baseline.estimate)
    found = {"pairs": rows, "mean": mean, "baseline_mean": reference}
    if not (math.isfinite(mean) and math.isfinite(reference)):
        unknown = ("difference", "low", "high", "effect", "p")
        return found | dict.fromkeys(unknown, math.nan) | {"difference": mean - reference}
    difference = mean - reference
    deviations = (ours.values - baseline.values).numpy()
    deviations = deviations - deviations.mean()
    error = float(np.sqrt(np.square(deviations).mean()))
    low, high = np.quantile(deviations, [0.025, 0.975])
    if error <= _ROUNDING and abs(difference) <= _ROUNDING:
        return found | {"difference": 0.0, "low": 0.0, "high": 0.0, "effect": 0.0, "p": 1.0}
    t = difference / error if error > 0 else math.copysign(math.inf, difference)
    return found | {
        "difference": difference,
        "low": difference + min(float(low), 0.0),
        "high": difference + max(float(high), 0.0),
        "effect": t / math.sqrt(rows),
        "p": float(2 * stats.t.sf(abs(t), rows - 1)),
    }
