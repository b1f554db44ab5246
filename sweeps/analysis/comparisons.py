"""Every row against the baseline, with the same help on both sides.

A row with the calibrator that validation data chose for it is compared with the baseline's
row and *its* chosen calibrator, and an uncalibrated row with the uncalibrated baseline:
otherwise the merit of a calibrator would be attributed to the row. Only if a calibrator is named
for the baseline is everything compared with exactly that.

The family of Holm's correction is everything that one headline can claim. A dataset's headline
says "better", "equivalent" or "worse" of every row in each of the ``claimed`` metrics, so all of
these are corrected together: the probability that it wrongly calls anything better is at most
5 %. Corrected for each metric separately, it would be wrong up to three times as often.
The rule is that of ``sweeps.analysis.verdicts``. Separate families are

- other datasets, each with its own headline: claims over all of them are tested by ranks. One
  of twenty headlines may be wrong;
- the comparisons as is, another question that the headline does not answer: they are a family
  of the same form;
- metrics that the headline does not name, each a family of its rows: they cost it nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration.metrics import METRICS, Metric, Shown
from sweeps.analysis.results import label
from sweeps.analysis.row_evidence import Name, RowEvidence
from sweeps.analysis.statistics import Estimate, effect_size, over_seeds
from sweeps.analysis.statistics.equivalence import NO_TESTS
from sweeps.analysis.verdicts import (
    BASELINE,
    RUN_AGAIN,
    UNMEASURED,
    UNRECORDED,
    Question,
    infinite_tests,
    judged,
    region_of,
)
from sweeps.errors import UserError
from sweeps.spec.schema import Spec

_ROUNDING = 1e-12
CHOSEN, AS_IS = "chosen", "as is"
"""The calibrators with which two rows are compared."""
_GROUPS = ["row", "calibrator"]
COMPARISON_COLUMNS = [
    *("dataset", "comparison", "row", "calibrator", "baseline_calibrator", "metric", "pairs"),
    *("mean", "baseline_mean", "difference", "low", "high", "effect", "region"),
    *("p", "p_holm", "verdict", "prob_better", "prob_equivalent", "prob_worse", "would_decide"),
]


def claimed() -> tuple[str, ...]:
    """The metrics named in a headline."""
    return METRICS.names(Shown.HEADLINE)


class Baseline(NamedTuple):
    """What the others are compared with: a row of the spec, optionally with a calibrator.

    Without one, it gets the same help as the row compared with it.
    """

    row: str
    calibrator: str | None = None

    @property
    def label(self) -> str:
        """Its name in tables."""
        if self.calibrator == "identity":
            return f"{self.row} {AS_IS}"
        return label(self.row, self.calibrator or "identity")

    @property
    def about(self) -> str:
        """A self-contained description."""
        if self.calibrator is None:
            return f"{self.row} (chosen calibrator against chosen calibrator, as is against as is)"
        return f"exactly {self.label}"

    def chosen(self, chosen: Mapping[str, str]) -> Name:
        """What chosen rows are compared with, given the chosen calibrator of every row."""
        return self.row, self.calibrator or chosen.get(self.row, "identity")


def find_baseline(spec: Spec, wanted: str | None = None) -> Baseline:
    """The row named ``wanted``, such as ``focal``, or exactly ``focal + temperature``.

    By default it is the row ``standard``; failing that the first row trained by that method,
    or else the first of all. ``standard + identity`` is exactly that row, uncalibrated. Raises
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
    evidence: Mapping[str, RowEvidence] | None = None,
    *,
    regions: Mapping[str, float] | None = None,
    look: int = 1,
) -> pd.DataFrame:
    """One line per dataset, comparison, metric of the leaderboard and row.

    ``calibrators`` are those chosen for each (dataset, row). ``comparison`` says whether the
    row is compared as chosen or as is; if both are the same there is one line. Tests are paired
    over common seeds, and ``mean`` and ``baseline_mean`` are those of these seeds. For a dataset
    with ``evidence``, seeds are crossed with its test rows, and verdicts are about new data; for
    any other only the seeds' spread is known: verdicts are about new data if every seed draws its
    own, otherwise about these very test rows. ``regions`` of practical equivalence replace the
    metrics' own, ``look`` counts the looks at growing results, from 1. The baseline's own lines
    belong to no family; neither do lines without a p-value.
    """
    lines: list[dict[str, Any]] = []
    questions: list[Question] = []
    for dataset, rows in tidy.groupby("dataset", sort=False):
        chosen = {row: name for (where, row), name in calibrators.items() if where == dataset}
        by_name = {name: group.set_index("seed") for name, group in rows.groupby(_GROUPS)}
        nothing = rows.head(0).set_index("seed")
        known = (evidence or {}).get(str(dataset))
        for comparison, ours, theirs in _pairs(chosen, list(by_name), baseline):
            own, reference = by_name[ours], by_name.get(theirs, nothing)
            about = {"dataset": dataset, "comparison": comparison, "baseline_calibrator": theirs[1]}
            about |= dict(zip(_GROUPS, ours, strict=True))
            for name in METRICS.names(Shown.LEADERBOARD):
                metric, values = METRICS[name], _values(reference, name)
                line = about | {"metric": name}
                region = region_of(metric, regions or {})
                if ours == theirs:
                    lines.append(line | _baseline_line(values) | {"region": region})
                    continue
                sides = Sides(_values(own, name), values)
                found = sides.question(
                    metric,
                    region,
                    (dataset, comparison, "claimed" if name in claimed() else name),
                    None if known is None else partial(known.estimate, metric, ours, theirs),
                )
                lines.append(line | sides.columns(found.estimate))
                lines[-1]["question"] = len(questions)
                questions.append(found)
    answers = judged(questions, look)
    for made in lines:
        if "question" in made:
            judgement = answers[made.pop("question")]._asdict()
            made.update(judgement | ({"verdict": made["verdict"]} if made["verdict"] else {}))
            made.update({"would_decide": RUN_AGAIN} if made["verdict"] == UNRECORDED else {})
    return pd.DataFrame(lines, columns=COMPARISON_COLUMNS)


def by_row(comparisons: pd.DataFrame) -> pd.DataFrame:
    """One line per metric and row of the leaderboard: for a chosen one, that as chosen."""
    return comparisons.drop_duplicates(["dataset", *_GROUPS, "metric"])  # chosen come first


def _pairs(
    chosen: Mapping[str, str], there: Sequence[Hashable], baseline: Baseline
) -> list[tuple[str, Name, Name]]:
    """The pairs to compare on one dataset; the baseline is paired with itself."""
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
    means = {"mean": mean, "baseline_mean": mean}
    return means | nothing | {"pairs": int(values.count()), "verdict": BASELINE, "would_decide": ""}


class Sides:
    """A metric's values by seed on both sides of a comparison, on their common seeds."""

    def __init__(self, ours: pd.Series, theirs: pd.Series) -> None:
        shared = ours.index.intersection(theirs.index)
        both = pd.DataFrame({"ours": ours.loc[shared], "theirs": theirs.loc[shared]})
        self.both = both.astype(np.float64).dropna()
        # A top-label calibrator has no proper scores; that does not make the seed a failed one.
        self.unmeasured = any(len(side) and side.isna().all() for side in (ours, theirs))
        self.unrecorded = False

    @property
    def differences(self) -> dict[int, float]:
        """Ours − theirs by seed; rounding errors count as 0."""
        ours, theirs = self.both["ours"], self.both["theirs"]
        rounding = _ROUNDING * np.maximum(ours.abs(), theirs.abs())
        found = (ours - theirs).where((ours - theirs).abs() > rounding, 0.0)
        return dict(zip(self.both.index.tolist(), found.tolist(), strict=True))

    @property
    def infinite(self) -> NDArray[np.int_]:
        """On how many seeds each side is infinite."""
        return np.asarray(np.isinf(self.both.to_numpy()).sum(axis=0), dtype=np.int_)

    def question(
        self,
        metric: Metric,
        region: float,
        family: Hashable,
        of_rows: Callable[[Mapping[int, float]], Estimate | None] | None,
    ) -> Question:
        """The question about the two sides; ``of_rows`` is the estimate from their test rows."""
        seeds = len(self.both)
        if self.infinite.any():
            mean = float(self.both["ours"].mean() - self.both["theirs"].mean())
            nothing = Estimate(mean, math.nan, math.nan, seeds)
            counts = infinite_tests(int(self.infinite[0]), seeds, int(self.infinite[1]), seeds)
            tests = counts if seeds > 1 else NO_TESTS
            return Question(metric, region, family, nothing, tests)
        differences = self.differences
        found = over_seeds(list(differences.values()))
        if of_rows is not None and not self.unmeasured:
            crossed = of_rows(differences)
            self.unrecorded = crossed is None
            found = crossed or Estimate(found.mean, math.nan, math.nan, seeds)
        return Question.about(metric, region, family, found)

    def columns(self, found: Estimate) -> dict[str, Any]:
        """The columns that need no correction; a verdict only if it needs no test."""
        low, high = found.interval()
        means = self.both.mean()
        return {
            "pairs": len(self.both),
            "mean": float(means["ours"]),
            "baseline_mean": float(means["theirs"]),
            "difference": found.mean,
            "low": low,
            "high": high,
            "effect": effect_size(list(self.differences.values())),
            "verdict": UNMEASURED if self.unmeasured else UNRECORDED if self.unrecorded else "",
        }
