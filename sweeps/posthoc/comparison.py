"""Is a calibrator better than none? Paired over the test rows, by resampling them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from calibration.metrics import METRICS
from calibration.metrics.bootstrap import Resampled, deviations
from calibration.metrics.row_scores import COUNTED
from sweeps.analysis.statistics import Estimate, claim_tests, quantum_variance
from sweeps.analysis.statistics.equivalence import NO_TESTS
from sweeps.analysis.verdicts import (
    BASELINE,
    SHOWN_BETTER,
    SHOWN_WORSE,
    UNDECIDED,
    UNMEASURED,
    Question,
    judged,
    region_of,
)

_ROUNDING = 1e-12
UNCALIBRATED = "identity"


def comparisons(
    calibrators: Mapping[str, Mapping[str, Resampled]],
    dataset: str,
    method: str,
    rows: int,
    groups: int | None = None,
) -> pd.DataFrame:
    """Every calibrator against ``identity`` in every metric both have.

    With values on the same resamples of the rows, the standard error of the difference is the
    deviation s of the differences (Efron and Tibshirani 1993); difference/s has Student's t with
    rows − 1 degrees of freedom, and verdicts follow as in ``sweeps.analysis.verdicts``, with the
    calibrators in one metric as a family. They are about new rows for this very network.
    Resampling adds the same noise to both, so the smaller of two calibration errors is
    overstated more: the test is conservative. ``effect`` is the difference divided by its
    deviation from row to row, s·√rows. If ``groups`` of rows were resampled, they take the place
    of rows, and verdicts are about new groups; resamples of G vary by (G − 1)/G of what those do.
    """
    lines: list[dict[str, Any]] = []
    questions: list[Question] = []
    baseline = calibrators.get(UNCALIBRATED, {})
    for name in baseline:
        metric = METRICS[name]
        region = region_of(metric, {})
        for calibrator, measured in calibrators.items():
            if name not in measured:
                continue
            least = quantum_variance(rows) if name in COUNTED else 0.0
            found, line = _compared(measured[name], baseline[name], rows, groups, least)
            place = {"dataset": dataset, "row": method, "calibrator": calibrator, "metric": name}
            tests = claim_tests(found, region)
            if calibrator == UNCALIBRATED:
                tests = NO_TESTS
            questions.append(Question(metric, region, name, found, tests))
            lines.append(place | line)
    answers = judged(questions)
    return pd.DataFrame(
        line | answer._asdict() | {"verdict": _verdict(line, answer.verdict)}
        for line, answer in zip(lines, answers, strict=True)
    )


def _verdict(line: Mapping[str, Any], judged_so: str) -> str:
    """An infinite loss is worse than any finite one; between two there is nothing to test."""
    if line["calibrator"] == UNCALIBRATED:
        return BASELINE
    mean, baseline = line["mean"], line["baseline_mean"]
    if math.isnan(mean) or math.isnan(baseline):
        return UNMEASURED
    if math.isinf(mean) or math.isinf(baseline):
        return UNDECIDED if mean == baseline else SHOWN_BETTER if mean < baseline else SHOWN_WORSE
    return judged_so


def _compared(
    ours: Resampled, baseline: Resampled, rows: int, groups: int | None, least: float
) -> tuple[Estimate, dict[str, float]]:
    units, grouped = groups or rows, groups is not None
    mean, reference = float(ours.estimate), float(baseline.estimate)
    line = {"pairs": units, "mean": mean, "baseline_mean": reference}
    difference = mean - reference
    if not (math.isfinite(mean) and math.isfinite(reference)):
        unknown = dict.fromkeys(("low", "high", "effect"), math.nan)
        nothing = Estimate(difference, math.nan, math.nan, 0, units, grouped=grouped)
        return nothing, line | {"difference": difference} | unknown
    resampled = (ours.values - baseline.values).double()
    error = float(resampled.std(correction=0)) * math.sqrt(units / (units - 1) if grouped else 1)
    low, high = (float(end) for end in deviations(resampled, groups=groups))
    if error <= _ROUNDING and abs(difference) <= _ROUNDING:
        difference = error = low = high = 0.0
    # By rows alone: one network has no seeds, and more rows are all that could decide.
    variance = max(error**2, least)
    found = Estimate(
        *(difference, variance, units - 1, 0, units),
        by_seed=0.0,
        by_row=variance * units,
        grouped=grouped,
    )
    return found, line | {
        "difference": difference,
        "low": difference + min(low, 0.0),
        "high": difference + max(high, 0.0),
        "effect": difference / error / math.sqrt(units)
        if error
        else 0.0
        if not difference
        else math.nan,
    }
