"""Every method, with the map chosen for it, against the baseline."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from calibration.metrics import METRICS, Metric, Shown
from sweeps.analysis.results import label
from sweeps.schema import Spec
from sweeps.spec import SpecError
from sweeps.statistics import corrected_t_test, holm

ALPHA = 0.05
BETTER, WORSE, UNDECIDED = "better", "worse", "no difference shown"
BASELINE, TOO_FEW, UNMEASURED = "baseline", "too few seeds", "not measured"
VERDICTS = (BETTER, WORSE, UNDECIDED, BASELINE, TOO_FEW, UNMEASURED)
GROUPS = ["method", "post_hoc"]
COLUMNS = [
    *("dataset", "method", "post_hoc", "metric", "pairs", "mean", "baseline_mean"),
    *("difference", "low", "high", "effect", "p", "p_holm", "verdict"),
]


class Baseline(NamedTuple):
    """What the others are compared with: a row of the spec with a map."""

    method: str
    post_hoc: str = "identity"

    @property
    def label(self) -> str:
        """How the leaderboard calls it."""
        return label(self.method, self.post_hoc)


def find_baseline(spec: Spec, wanted: str | None = None) -> Baseline:
    """The row called ``wanted``, such as ``focal`` or ``focal + temperature``.

    By default it is the row ``standard`` without a map; failing that the first row trained
    by that method, or else the first of all. Raises ``SpecError`` for a row or map that the
    sweep does not have.
    """
    if wanted is None:
        plain = [name for name, row in spec.methods.items() if row.method == "standard"]
        first = "standard" if "standard" in spec.methods else [*plain, *spec.methods][0]
        return Baseline(first)
    name = wanted.strip()
    if name in spec.methods:
        return Baseline(name)
    method, _, post_hoc = (part.strip() for part in name.rpartition("+"))
    if method not in spec.methods:
        raise SpecError(
            f"--baseline: found {wanted!r}; write a trained row, with or without a map: "
            f"{', '.join(spec.methods)}"
        )
    if post_hoc not in spec.maps:
        raise SpecError(
            f"--baseline: found {wanted!r}; the sweep's maps are: {', '.join(spec.maps)}"
        )
    return Baseline(method, post_hoc)


def compare(
    tidy: pd.DataFrame,
    chosen: Mapping[tuple[str, str], str],
    baseline: Baseline,
    ratios: Mapping[str, float],
) -> pd.DataFrame:
    """One row per dataset, metric of the leaderboard and method with its chosen map.

    Tests are paired over the seeds that both have, and ``mean`` and ``baseline_mean`` are
    those of these seeds. ``p_holm`` is adjusted for all methods of one dataset and metric;
    below 5 % the sign of the difference is the verdict. The baseline has a row of its own,
    which is no member of that family; nor is what has no p-value.
    """
    lines = []
    for dataset, rows in tidy.groupby("dataset", sort=False):
        family = [(m, post_hoc) for (where, m), post_hoc in chosen.items() if where == dataset]
        by_name = {name: group.set_index("seed") for name, group in rows.groupby(GROUPS)}
        reference = by_name.get(tuple(baseline), rows.head(0).set_index("seed"))
        for metric in METRICS.names(Shown.LEADERBOARD):
            common = {"dataset": dataset, "metric": metric}
            values = _values(reference, metric)
            if len(reference):
                lines.append(common | _baseline_line(baseline, values))
            for name in family:
                if name != baseline:
                    ours = _values(by_name[name], metric)
                    tested = _tested(ours, values, ratios[str(dataset)])
                    lines.append(common | dict(zip(GROUPS, name, strict=True)) | tested)
    table = pd.DataFrame(lines, columns=COLUMNS)
    for _, rows in table.groupby(["dataset", "metric"]):
        table.loc[rows.index, "p_holm"] = holm(rows["p"])
    table["verdict"] = [_verdict(line) for line in table.to_dict("records")]
    return table


def _values(rows: pd.DataFrame, metric: str) -> pd.Series:
    return rows[metric] if metric in rows else pd.Series(np.nan, index=rows.index)


def _baseline_line(baseline: Baseline, values: pd.Series) -> dict[str, Any]:
    mean = float(values.mean())
    nothing = dict.fromkeys(("difference", "low", "high", "effect"), 0.0 * mean)
    means = {"mean": mean, "baseline_mean": mean, "p": np.nan, "p_holm": np.nan}
    pairs = {"pairs": int(values.count()), "verdict": BASELINE}
    return baseline._asdict() | means | nothing | pairs


def _tested(ours: pd.Series, baseline: pd.Series, ratio: float) -> dict[str, Any]:
    pairs = pd.concat([ours, baseline], axis=1, join="inner", keys=["mean", "baseline_mean"])
    pairs = pairs.dropna()
    test = corrected_t_test(pairs["mean"], pairs["baseline_mean"], correlation_ratio=ratio)
    # A top-label map has no proper scores; that is another thing than a seed that failed.
    unmeasured = any(len(values) and values.isna().all() for values in (ours, baseline))
    means = {name: float(pairs[name].mean()) for name in ("mean", "baseline_mean")}
    return test._asdict() | means | {"p_holm": np.nan, "verdict": UNMEASURED if unmeasured else ""}


def _verdict(line: Mapping[Hashable, Any]) -> str:
    if line["verdict"]:
        return str(line["verdict"])
    return verdict(METRICS[line["metric"]], line["mean"], line["baseline_mean"], line["p_holm"])


def verdict(metric: Metric, mean: float, baseline_mean: float, p_holm: float) -> str:
    """What a mean of a metric shows against another.

    An infinite NLL, of a certainty that was wrong, is worse than any other without a test.
    """
    if np.isnan(p_holm) and not (np.isinf(mean) or np.isinf(baseline_mean)):
        return TOO_FEW
    if mean == baseline_mean or p_holm >= ALPHA:
        return UNDECIDED
    return BETTER if metric.better(mean, baseline_mean) else WORSE
