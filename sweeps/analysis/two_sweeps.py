"""Two sweeps side by side: what changed, significant or not.

Every method stands for itself with the calibrator that was chosen for it on validation data, in
each of the two sweeps by itself. Where both drew or divided the same data with the same
seeds the values of these seeds are paired; otherwise the test is Welch's.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from calibration.metrics import METRICS, Shown
from sweeps.analysis import Analysis, correlation_ratio
from sweeps.analysis.comparisons import UNMEASURED, verdict
from sweeps.analysis.statistics import corrected_t_test, holm

_COLUMNS = (
    *("dataset", "row", "calibrator_a", "calibrator_b", "metric", "test", "seeds_a", "seeds_b"),
    *("mean_a", "mean_b", "difference", "low", "high", "p", "p_holm", "verdict"),
)


def compare_sweeps(a: Analysis, b: Analysis, metrics: Sequence[str] | None = None) -> pd.DataFrame:
    """One line per dataset, method and metric that both have; b − a, with Holm's correction.

    The family of one correction is all methods on one dataset in one metric that have a
    p-value: what is identical, or was measured in another way, has none.
    """
    lines = [
        _line(a, b, dataset, method, metric)
        for dataset in a.records.loaded.datasets
        if dataset in b.records.loaded.datasets
        for metric in metrics or METRICS.names(Shown.LEADERBOARD)
        for method in a.records.spec.methods
        if all((dataset, method) in sweep.selection.calibrators for sweep in (a, b))
    ]
    table = pd.DataFrame(lines, columns=list(_COLUMNS))
    for _, family in table.groupby(["dataset", "metric"]):
        table.loc[family.index, "p_holm"] = holm(family["p"].to_numpy(dtype=float))
    table["verdict"] = [_verdict(line) for line in table.to_dict("records")]
    return table


def only_in_one(a: Analysis, b: Analysis) -> list[str]:
    """What has a result in one of the two only, in words."""
    in_a, in_b = (set(sweep.selection.calibrators) for sweep in (a, b))
    name_a, name_b = a.records.spec.name, b.records.spec.name
    if name_a == name_b:
        name_a, name_b = "the first", "the second"
    return [
        *(f"only in {name_a}: {method} on {dataset}" for dataset, method in sorted(in_a - in_b)),
        *(f"only in {name_b}: {method} on {dataset}" for dataset, method in sorted(in_b - in_a)),
    ]


def other_circumstances(a: Analysis, b: Analysis) -> list[str]:
    """Data, versions and lines of the spec that differ."""
    found = []
    for dataset in a.records.loaded.datasets:
        if dataset in b.records.loaded.datasets and not _same_data(a, b, dataset):
            found.append(f"{dataset}: the data are not the same")
    versions_a, versions_b = _versions(a), _versions(b)
    for name in sorted({*versions_a, *versions_b}):
        old, new = versions_a.get(name, "–"), versions_b.get(name, "–")
        if old != new:
            found.append(f"{name}: {old} → {new}")
    changed = difflib.ndiff(a.records.loaded.text.splitlines(), b.records.loaded.text.splitlines())
    return found + [line.rstrip() for line in changed if line[0] in "+-" and line[2:].strip()]


def _line(a: Analysis, b: Analysis, dataset: str, method: str, metric: str) -> dict[str, Any]:
    calibrators = [sweep.selection.calibrators[dataset, method] for sweep in (a, b)]
    old, new = (
        _by_seed(sweep, dataset, method, chosen, metric)
        for sweep, chosen in zip((a, b), calibrators, strict=True)
    )
    line = {
        "dataset": dataset,
        "row": method,
        "calibrator_a": calibrators[0],
        "calibrator_b": calibrators[1],
        "metric": metric,
        "seeds_a": old.count(),
        "seeds_b": new.count(),
        "mean_a": old.mean(),
        "mean_b": new.mean(),
    }
    ratios = (
        correlation_ratio(a.records.loaded, dataset),
        correlation_ratio(b.records.loaded, dataset),
    )
    shared = old.index.intersection(new.index)
    if METRICS[metric].binned and a.records.spec.bins != b.records.spec.bins:
        nothing = dict.fromkeys(("difference", "low", "high", "p"), math.nan)
        return line | {"test": "–", "verdict": "other bins"} | nothing
    if _same_data(a, b, dataset) and len(shared) >= 2:
        old, new = old[shared], new[shared]
        line |= {"seeds_a": len(shared), "seeds_b": len(shared)}
        line |= {"mean_a": old.mean(), "mean_b": new.mean()}
        return (
            line
            | {"test": "paired"}
            | _paired(old, new, correlation_ratio(a.records.loaded, dataset))
        )
    ratios = (
        correlation_ratio(a.records.loaded, dataset),
        correlation_ratio(b.records.loaded, dataset),
    )
    return line | {"test": "unpaired"} | _unpaired(old, new, ratios)


def _paired(old: pd.Series, new: pd.Series, ratio: float) -> dict[str, Any]:
    if len(old) and (old.to_numpy() == new.to_numpy()).all():
        return {"difference": 0.0, "low": 0.0, "high": 0.0, "p": math.nan, "verdict": "identical"}
    found = corrected_t_test(new, old, correlation_ratio=ratio)
    return {"difference": found.difference, "low": found.low, "high": found.high, "p": found.p}


def _unpaired(old: pd.Series, new: pd.Series, ratios: tuple[float, float]) -> dict[str, Any]:
    """Welch's t-test, each mean's variance corrected by its own ratio as in the paired test."""
    difference = float(new.mean() - old.mean())
    if min(old.count(), new.count()) < 2 or not np.isfinite(difference):
        return {"difference": difference, "low": math.nan, "high": math.nan, "p": math.nan}
    parts = [
        values.var(ddof=1) * (1 / values.count() + ratio)
        for values, ratio in zip((old, new), ratios, strict=True)
    ]
    error = math.sqrt(sum(parts))
    if error == 0:
        return {"difference": difference, "low": math.nan, "high": math.nan, "p": math.nan}
    squares = sum(
        part**2 / (values.count() - 1) for part, values in zip(parts, (old, new), strict=True)
    )
    freedom = error**4 / squares
    half = float(stats.t.ppf(0.975, freedom)) * error
    p = float(2 * stats.t.sf(abs(difference) / error, freedom))
    return {"difference": difference, "low": difference - half, "high": difference + half, "p": p}


def _verdict(line: Mapping[Any, Any]) -> str:
    if isinstance(line["verdict"], str):
        return line["verdict"]
    if math.isnan(line["mean_a"]) or math.isnan(line["mean_b"]):
        return UNMEASURED
    return verdict(METRICS[line["metric"]], line["mean_b"], line["mean_a"], line["p_holm"])


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
