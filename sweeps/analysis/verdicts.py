"""The verdicts, and the one rule behind them.

A difference within a metric's region of practical equivalence does not matter. A row is

- *better* if the one-sided test against the region's better edge has a corrected p below 0.05;
- *worse* likewise, beyond the other edge;
- *equivalent* if two one-sided tests show the difference to lie between the edges;
- otherwise *undecided*, with what would decide.

P-values are corrected by Holm's method within a family, separately for each kind of claim: the
probability that a family wrongly calls anything better is at most 5 %, and likewise for worse and
for equivalent. They are also multiplied by ``look_factor`` for repeated looks.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from calibration.metrics import Metric
from sweeps.analysis.statistics import (
    ALPHA,
    SPENT,
    Claims,
    Estimate,
    claim_probabilities,
    claim_tests,
    holm,
    look_factor,
    needed,
)

SHOWN_BETTER, EQUIVALENT, SHOWN_WORSE, UNDECIDED = "better", "equivalent", "worse", "undecided"
BASELINE, TOO_FEW, UNMEASURED = "baseline", "too few seeds", "not measured"
UNRECORDED = "too little recorded"
VERDICTS = (
    SHOWN_BETTER,
    EQUIVALENT,
    SHOWN_WORSE,
    UNDECIDED,
    BASELINE,
    TOO_FEW,
    UNMEASURED,
    UNRECORDED,
)
PRIMARY = "nll"
"""The metric whose verdict represents a row where only one fits."""
RUN_AGAIN = "run the sweep again: the scores of single test rows are not recorded"
VERY_MANY = "very many"
AT_THE_EDGE = "it lies close to the region's edge"


class Question(NamedTuple):
    """One comparison to judge, and the family in which it is corrected."""

    metric: Metric
    region: float
    family: Hashable
    estimate: Estimate
    tests: Claims

    @classmethod
    def about(cls, metric: Metric, region: float, family: Hashable, found: Estimate) -> Question:
        """A question that the t distribution of an estimate answers."""
        return cls(metric, region, family, found, claim_tests(found, region))


class Judgement(NamedTuple):
    """The verdict on one comparison; ``p`` and ``p_holm`` are those of the likeliest claim."""

    region: float
    p: float
    p_holm: float
    verdict: str
    prob_better: float
    prob_equivalent: float
    prob_worse: float
    would_decide: str


def region_of(metric: Metric, own: Mapping[str, float]) -> float:
    """The half-width of practical equivalence: the spec's own, or the metric's; 0 for none."""
    return own.get(metric.name, metric.region or 0.0)


def judged(questions: Sequence[Question], look: int | None = None) -> list[Judgement]:
    """The judgement on each question, all of them corrected in their families.

    ``look`` counts the looks at growing results, from 1; None if they do not grow.
    """
    factor = 1.0 if look is None else look_factor(look)
    next_level = ALPHA if look is None else SPENT[min(look, len(SPENT) - 1)]
    families = defaultdict(list)
    for place, question in enumerate(questions):
        families[question.family].append(place)
    found: dict[int, Judgement] = {}
    for places in families.values():
        members = [questions[place] for place in places]
        raw = np.array([question.tests for question in members], dtype=np.float64)
        adjusted = np.stack([holm(column) for column in raw.T], axis=1)
        adjusted = np.minimum(adjusted * factor, 1.0)
        level = next_level / max(1, int((~np.isnan(raw[:, 0])).sum()))
        for place, question, own, corrected in zip(places, members, raw, adjusted, strict=True):
            found[place] = _judgement(question, own.tolist(), corrected.tolist(), level)
    return [found[place] for place in range(len(questions))]


def infinite_tests(ours: int, of_ours: int, theirs: int, of_theirs: int) -> Claims:
    """Fisher's exact tests of the numbers of seeds on which a loss is infinite.

    A wrong prediction with certainty leaves no mean to compare. A single one can happen to any
    calibrator that gives probabilities of 0, and does not show a difference.
    """
    table = np.array([[ours, of_ours - ours], [theirs, of_theirs - theirs]])
    fewer, more = (
        float(stats.fisher_exact(table, alternative=side).pvalue) for side in ("less", "greater")
    )
    return Claims(fewer, math.nan, more)


def _judgement(
    question: Question, raw: list[float], corrected: list[float], level: float
) -> Judgement:
    words = (SHOWN_BETTER, EQUIVALENT, SHOWN_WORSE)
    beliefs = claim_probabilities(question.estimate, question.region)
    if question.metric.direction == "maximize":
        raw, corrected, beliefs = raw[::-1], corrected[::-1], Claims(*beliefs[::-1])
    if np.isnan(corrected).all():
        return Judgement(question.region, math.nan, math.nan, TOO_FEW, *beliefs, "")
    best = int(np.nanargmin(corrected))
    decided = corrected[best] < ALPHA
    return Judgement(
        question.region,
        float(raw[best]),
        float(corrected[best]),
        words[best] if decided else UNDECIDED,
        *beliefs,
        "" if decided else _would_decide(question, level),
    )


def _would_decide(question: Question, level: float) -> str:
    found = needed(question.estimate, question.region, level)
    if found is None:
        return ""
    if found == (0, 0):
        return AT_THE_EDGE
    of_data = "test group" if question.estimate.grouped else "test row"
    parts = [
        f"{_rounded(number)} more {noun}{'' if number == 1 else 's'}"
        for number, noun in zip(found, ("seed", of_data), strict=True)
        if number
    ]
    more = " and ".join(parts)
    return more if more.startswith(VERY_MANY) else f"about {more}"


def _rounded(number: float) -> str:
    """A number with two digits: it is only an estimate."""
    if math.isinf(number):
        return VERY_MANY
    size = 10 ** max(0, len(str(int(number))) - 2)
    return f"{math.ceil(number / size) * size:,}"
