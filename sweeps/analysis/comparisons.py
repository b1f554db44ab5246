"""Every row against the baseline, with the same help on both sides.

A row with the calibrator that validation data chose for it is compared with the baseline's
row and *its* chosen calibrator, and as it is with the baseline as it is: otherwise a
calibrator's merit would be taken for the row's. Only who names a calibrator for the baseline
gets everything compared with exactly that.

The family of Holm's correction is what one headline can claim. A dataset's headline says
"better" or "worse" of every row in each of the ``claimed`` metrics, so that all of these
are corrected together: it is wrong in anything with a probability of at most 5 %. Corrected
for each metric by itself it would be wrong up to three times as often. Apart from that are

- other datasets, each with a headline of its own: what holds over all of them is tested by
  ranks. Of twenty headlines one may be wrong;
- the comparisons as is, another question of which the headline does not speak: they are a
  family of the same form;
- metrics that the headline does not name, each a family of its rows: they cost it nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from calibration.metrics import METRICS, Metric, Shown
from sweeps.analysis.results import label
from sweeps.analysis.statistics import corrected_t_test, holm
from sweeps.errors import UserError
from sweeps.spec.schema import Spec

_ALPHA = 0.05
_BETTER, _WORSE, UNDECIDED = "better", "worse", "no difference shown"
BASELINE, TOO_FEW, UNMEASURED = "baseline", "too few seeds", "not measured"
VERDICTS = (_BETTER, _WORSE, UNDECIDED, BASELINE, TOO_FEW, UNMEASURED)
CHOSEN, AS_IS = "chosen", "as is"
"""With which calibrators two rows are compared."""
_GROUPS = ["row", "calibrator"]
COMPARISON_COLUMNS = [
    *("dataset", "comparison", "row", "calibrator", "baseline_calibrator", "metric", "pairs"),
    *("mean", "baseline_mean", "difference", "low", "high", "effect", "p", "p_holm", "verdict"),
]
Name = tuple[str, str]
"""A row and a calibrator."""


def claimed() -> tuple[str, ...]:
    """The metrics that a headline speaks of."""
    return METRICS.names(Shown.HEADLINE)


class Baseline(NamedTuple):
    """What the others are compared with: a row of the spec, and perhaps a calibrator.

    Without one, it has the help that the row compared with it has.
    """

    row: str
    calibrator: str | None = None

    @property
    def label(self) -> str:
        """What a table calls it."""
        if self.calibrator == "identity":
            return f"{self.row} {AS_IS}"
        return label(self.row, self.calibrator or "identity")

    @property
    def about(self) -> str:
        """What it is, for who reads only one line of the report."""
        if self.calibrator is None:
            return f"{self.row} (chosen calibrator against chosen calibrator, as is against as is)"
        return f"exactly {self.label}"

    def chosen(self, chosen: Mapping[str, str]) -> Name:
        """What the chosen are compared with, where every row has the calibrator given here."""
        return self.row, self.calibrator or chosen.get(self.row, "identity")


def find_baseline(spec: Spec, wanted: str | None = None) -> Baseline:
    """The row called ``wanted``, such as ``focal``, or exactly ``focal + temperature``.

    By default it is the row ``standard``; failing that the first row trained by that method,
    or else the first of all. ``standard + identity`` is exactly that row as it is. Raises
    ``UserError`` for a row or calibrator that the sweep does not have.
    """
    if wanted is None:
        plain = [name for name, row in spec.methods.items() if row.method == "standard"]
        first = "standard" if "standard" in spec.methods else [*plain, *spec.methods][0]
        return Baseline(first)
    name = wanted.strip()
    if name in spec.methods:
        return Baseline(name)
    method, _, calibrator = (part.strip() for part in name.rpartition("+"))
    if method not in spec.methods:
        raise UserError(
            f"--baseline: found {wanted!r}; write a trained row, with or without a calibrator: "
            f"{', '.join(spec.methods)}"
        )
    if calibrator not in spec.calibrator_names:
        raise UserError(
            f"--baseline: found {wanted!r}; the sweep's calibrators are: "
            f"{', '.join(spec.calibrator_names)}"
        )
    return Baseline(method, calibrator)


def compare(
    tidy: pd.DataFrame,
    calibrators: Mapping[tuple[str, str], str],
    baseline: Baseline,
    ratios: Mapping[str, float],
) -> pd.DataFrame:
    """One line per dataset, comparison, metric of the leaderboard and row.

    ``calibrators`` are those chosen for each (dataset, row). ``comparison`` says whether the
    row is there as chosen or as is; where both come to the same there is one line. Tests
    are paired over the seeds that both have, and ``mean`` and ``baseline_mean`` are those of
    these seeds. Below 5 % of ``p_holm`` the sign of the difference is the verdict; the module
    says what it is corrected for. The baseline has lines of its own, which are no members of
    that family; nor is what has no p-value.
    """
    lines = []
    for dataset, rows in tidy.groupby("dataset", sort=False):
        chosen = {row: name for (where, row), name in calibrators.items() if where == dataset}
        by_name = {name: group.set_index("seed") for name, group in rows.groupby(_GROUPS)}
        nothing = rows.head(0).set_index("seed")
        for comparison, ours, theirs in _pairs(chosen, list(by_name), baseline):
            own, reference = by_name[ours], by_name.get(theirs, nothing)
            about = {"dataset": dataset, "comparison": comparison, "baseline_calibrator": theirs[1]}
            about |= dict(zip(_GROUPS, ours, strict=True))
            for metric in METRICS.names(Shown.LEADERBOARD):
                values = _values(reference, metric)
                if ours == theirs:
                    found = _baseline_line(values)
                else:
                    found = _tested(_values(own, metric), values, ratios[str(dataset)])
                lines.append(about | {"metric": metric} | found)
    table = pd.DataFrame(lines, columns=COMPARISON_COLUMNS)
    together = table["metric"].where(~table["metric"].isin(claimed()), "claimed")
    for _, rows in table.groupby(["dataset", "comparison", together]):
        table.loc[rows.index, "p_holm"] = holm(rows["p"])
    table["verdict"] = [_verdict(line) for line in table.to_dict("records")]
    return table


def by_row(comparisons: pd.DataFrame) -> pd.DataFrame:
    """One line per metric and row of the leaderboard: of a chosen one, that as chosen."""
    return comparisons.drop_duplicates(["dataset", *_GROUPS, "metric"])  # chosen come first


def _pairs(
    chosen: Mapping[str, str], there: Sequence[Hashable], baseline: Baseline
) -> list[tuple[str, Name, Name]]:
    """What is compared with what on one dataset; with itself, where it is the baseline."""
    reference = baseline.chosen(chosen)
    found: list[tuple[str, Name, Name]] = [
        (CHOSEN, (row, name), reference) for row, name in chosen.items()
    ]
    plain = baseline.row, baseline.calibrator or "identity"
    for row in chosen:
        ours = row, "identity"
        if ours in there and (CHOSEN, ours, plain) not in found:
            found.append((AS_IS, ours, plain))
    if baseline.calibrator and plain in there and not any(ours == plain for _, ours, _ in found):
        found.append((BASELINE, plain, plain))
    return found


def _values(rows: pd.DataFrame, metric: str) -> pd.Series:
    return rows[metric] if metric in rows else pd.Series(np.nan, index=rows.index)


def _baseline_line(values: pd.Series) -> dict[str, Any]:
    mean = float(values.mean())
    nothing = dict.fromkeys(("difference", "low", "high", "effect"), 0.0 * mean)
    means = {"mean": mean, "baseline_mean": mean, "p": np.nan, "p_holm": np.nan}
    return means | nothing | {"pairs": int(values.count()), "verdict": BASELINE}


def _tested(ours: pd.Series, baseline: pd.Series, ratio: float) -> dict[str, Any]:
    shared = ours.index.intersection(baseline.index)
    both = np.stack([ours.loc[shared], baseline.loc[shared]]).astype(np.float64)
    both = both[:, ~np.isnan(both).any(axis=0)]
    seeds = both.shape[1]
    means = both.mean(axis=1) if seeds else np.full(2, np.nan)
    # A top-label calibrator has no proper scores; that is another thing than a seed that failed.
    unmeasured = any(len(values) and values.isna().all() for values in (ours, baseline))
    found = corrected_t_test(*both, correlation_ratio=ratio)._asdict()
    found |= {"mean": means[0], "baseline_mean": means[1], "p_holm": np.nan}
    found["verdict"] = UNMEASURED if unmeasured else ""
    if np.isinf(both).any():
        if seeds < 2:
            return found | {"verdict": TOO_FEW}
        found["p"] = _infinite_p(np.isinf(both).sum(axis=1), seeds)
    return found


def _infinite_p(infinite: NDArray[np.int_], seeds: int) -> float:
    """Fisher's exact test of the numbers of seeds on which an NLL is infinite.

    A certainty that was wrong leaves no mean to compare. A single one can happen to any calibrator
    that gives probabilities of 0, and shows nothing of a difference.
    """
    return float(stats.fisher_exact(np.stack([infinite, seeds - infinite])).pvalue)


def _verdict(line: Mapping[Hashable, Any]) -> str:
    if line["verdict"]:
        return str(line["verdict"])
    return verdict(METRICS[line["metric"]], line["mean"], line["baseline_mean"], line["p_holm"])


def verdict(metric: Metric, mean: float, baseline_mean: float, p_holm: float) -> str:
    """What a mean of a metric shows against another.

    Without a test, an infinite NLL, of a certainty that was wrong, is worse than any other.
    """
    untested = np.isnan(p_holm)
    if untested and not (np.isinf(mean) or np.isinf(baseline_mean)):
        return TOO_FEW
    if mean == baseline_mean or p_holm >= _ALPHA:
        return UNDECIDED
    return _BETTER if metric.better(mean, baseline_mean) else _WORSE
