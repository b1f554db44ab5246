"""Two sweeps side by side: what changed, significant or not.

Every method is represented with the calibrator chosen for it on validation data, separately in
each of the two sweeps. If both drew or split the same data with the same seeds, the values of
these seeds are paired, crossed with the test rows that they share; otherwise the test is Welch's.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from calibration.metrics import METRICS, Shown
from sweeps.analysis import Analysis
from sweeps.analysis.comparisons import Sides, claimed
from sweeps.analysis.seed_intervals import WIDTH
from sweeps.analysis.statistics import Estimate
from sweeps.analysis.verdicts import (
    UNMEASURED,
    UNRECORDED,
    Question,
    infinite_tests,
    judged,
    region_of,
)

_COLUMNS = (
    *("dataset", "row", "calibrator_a", "calibrator_b", "metric", "test", "seeds_a", "seeds_b"),
    *("mean_a", "mean_b", "difference", "low", "high", "region", "p", "p_holm", "verdict"),
    *("prob_better", "prob_equivalent", "prob_worse", "would_decide"),
)
SAME_VALUES = "identical"


def compare_sweeps(a: Analysis, b: Analysis) -> pd.DataFrame:
    """One line per dataset, method and metric of the leaderboard; b − a, with Holm's correction.

    Only what both sweeps have is compared. Verdicts follow the rule of
    ``sweeps.analysis.verdicts``. On one dataset, all methods in all claimed metrics are corrected
    together, and all methods in each other metric. Identical values, and values measured
    differently, have no p-value.
    """
    lines: list[dict[str, Any]] = []
    questions: list[Question] = []
    for dataset in a.records.loaded.datasets:
        if dataset not in b.records.loaded.datasets:
            continue
        for metric in METRICS.names(Shown.LEADERBOARD):
            for method in a.records.spec.methods:
                if all((dataset, method) in sweep.selection.calibrators for sweep in (a, b)):
                    line, found = _line(a, b, dataset, method, metric)
                    lines.append(line)
                    questions.append(found)
    for line, answer in zip(lines, judged(questions), strict=True):
        line.update(
            {**answer._asdict(), **({"verdict": line["verdict"]} if line["verdict"] else {})}
        )
        if math.isnan(line["mean_a"]) or math.isnan(line["mean_b"]):
            line["verdict"] = UNMEASURED
    return pd.DataFrame(lines, columns=list(_COLUMNS))


def only_in_one(a: Analysis, b: Analysis) -> list[str]:
    """Descriptions of the results that only one of the two has."""
    in_a, in_b = (set(sweep.selection.calibrators) for sweep in (a, b))
    name_a, name_b = a.records.spec.name, b.records.spec.name
    if name_a == name_b:
        name_a, name_b = "the first", "the second"
    return [
        *(f"only in {name_a}: {method} on {dataset}" for dataset, method in sorted(in_a - in_b)),
        *(f"only in {name_b}: {method} on {dataset}" for dataset, method in sorted(in_b - in_a)),
    ]


def other_circumstances(a: Analysis, b: Analysis) -> list[str]:
    """Differences in data, versions and lines of the spec."""
    found = []
    for dataset in a.records.loaded.datasets:
        if dataset in b.records.loaded.datasets and not _same_data(a, b, dataset):
            found.append(f"{dataset}: the data differ")
    versions_a, versions_b = _versions(a), _versions(b)
    for name in sorted({*versions_a, *versions_b}):
        old, new = versions_a.get(name, "–"), versions_b.get(name, "–")
        if old != new:
            found.append(f"{name}: {old} → {new}")
    changed = difflib.ndiff(a.records.loaded.text.splitlines(), b.records.loaded.text.splitlines())
    return found + [line.rstrip() for line in changed if line[0] in "+-" and line[2:].strip()]


def _line(
    a: Analysis, b: Analysis, dataset: str, method: str, name: str
) -> tuple[dict[str, Any], Question]:
    chosen = [sweep.selection.calibrators[dataset, method] for sweep in (a, b)]
    old, new = (
        _by_seed(sweep, dataset, method, calibrator, name)
        for sweep, calibrator in zip((a, b), chosen, strict=True)
    )
    metric = METRICS[name]
    family = dataset, "claimed" if name in claimed() else name
    region = region_of(metric, b.records.spec.equivalence)
    line: dict[str, Any] = {"dataset": dataset, "row": method, "metric": name, "verdict": ""}
    line |= {"calibrator_a": chosen[0], "calibrator_b": chosen[1]}
    paired = _same_data(a, b, dataset) and len(old.index.intersection(new.index)) >= 2
    if paired:
        sides = Sides(new, old)
        new, old = sides.both["ours"], sides.both["theirs"]
    line |= {"seeds_a": old.count(), "seeds_b": new.count()}
    line |= {"mean_a": old.mean(), "mean_b": new.mean()}
    untested = Estimate(float(new.mean() - old.mean()), math.nan, math.nan, 0)
    if metric.binned and a.records.spec.bins != b.records.spec.bins:
        found = Question.about(metric, region, family, untested._replace(mean=math.nan))
        line |= {"test": "–", "verdict": "other bins"}
    elif paired and (old.to_numpy() == new.to_numpy()).all():
        found = Question.about(metric, region, family, untested._replace(mean=0.0))
        line |= {"test": "paired", "verdict": SAME_VALUES}
    elif paired:
        ours, theirs = (method, chosen[1]), (method, chosen[0])
        known = b.evidence.get(dataset), a.evidence.get(dataset)
        of_rows = None
        if known[0] is not None and known[1] is not None:
            of_rows = partial(known[0].estimate, metric, ours, theirs, other=known[1])
        found = sides.question(metric, region, family, of_rows)
        line |= {"test": "paired", "verdict": UNRECORDED if sides.unrecorded else ""}
    elif np.isinf([*old, *new]).any() and min(old.count(), new.count()) > 1:
        counts = (int(np.isinf(side).sum()) for side in (new, old))
        of_new, of_old = counts
        tests = infinite_tests(of_new, len(new), of_old, len(old))
        found = Question(metric, region, family, untested, tests)
        line |= {"test": "unpaired"}
    else:
        rows = [
            _row_variance(sweep, dataset, method, c, name)
            for sweep, c in zip((a, b), chosen, strict=True)
        ]
        found = Question.about(metric, region, family, _unpaired(old, new, rows) or untested)
        line |= {"test": "unpaired"}
    low, high = found.estimate.interval()
    if line["verdict"] == SAME_VALUES:
        low = high = 0.0
    return line | {"difference": found.estimate.mean, "low": low, "high": high}, found


def _unpaired(old: pd.Series, new: pd.Series, row_variances: Sequence[float]) -> Estimate | None:
    """Welch's t-test; for new data, with the variance over each side's test rows added."""
    difference = float(new.mean() - old.mean())
    if min(old.count(), new.count()) < 2 or not np.isfinite(difference):
        return None
    parts = [values.var(ddof=1) / values.count() for values in (old, new)]
    variance = sum(parts) + sum(row_variances)
    squares = sum(p**2 / (v.count() - 1) for p, v in zip(parts, (old, new), strict=True))
    if not variance > 0:
        return None
    freedom = variance**2 / squares if squares > 0 else float(old.count() + new.count() - 2)
    return Estimate(difference, variance, freedom, int(old.count() + new.count()))


def _row_variance(sweep: Analysis, dataset: str, method: str, chosen: str, metric: str) -> float:
    """The largest variance of a mean over seeds that share test rows; see ``with_intervals``."""
    if sweep.about == "test_set" or dataset not in sweep.records.fixed_test_parts:
        return 0.0
    ends = [_by_seed(sweep, dataset, method, chosen, f"{metric}_{end}") for end in ("low", "high")]
    return float(np.square((ends[1] - ends[0]) / WIDTH).mean())


def _by_seed(sweep: Analysis, dataset: str, method: str, chosen: str, metric: str) -> pd.Series:
    rows = sweep.results
    here = rows[
        (rows["dataset"] == dataset) & (rows["row"] == method) & (rows["calibrator"] == chosen)
    ].set_index("seed")
    return here[metric].dropna() if metric in here else pd.Series(dtype=float)


def _same_data(a: Analysis, b: Analysis, dataset: str) -> bool:
    one, other = a.records.loaded.datasets[dataset], b.records.loaded.datasets[dataset]
    return (
        one.fingerprint == other.fingerprint and a.records.spec.protocol == b.records.spec.protocol
    )


def _versions(sweep: Analysis) -> dict[str, str]:
    ended = (trial for cell in sweep.records.cells.values() for trial in cell.summaries)
    return dict(next((trial.environment for trial in ended), {}))
