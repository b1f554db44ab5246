"""When to abstain: a confidence threshold for a target coverage or a guaranteed accuracy.

A row is accepted if its confidence is at least the threshold. Thresholds are chosen on held-out
rows from their confidence (N,) and whether the prediction is right (N,).

What ``accuracy_threshold`` guarantees: over repeated draws of independent held-out rows, in at
least 95 % of them the accuracy among accepted rows of the same population is at least the
target. This is exact if that accuracy does not fall as the threshold rises, as one expects of
a confidence, and approximate otherwise (the tests draw such cases). The guarantee concerns
the population, not the next hundred rows, and does not extend to single classes or groups, to
shifted data, or to an accuracy that was picked after looking at the outcome. Held-out rows that
also selected the network's epoch, its settings or its calibrator are no longer independent of
them: the guarantee is then optimistic to the extent that these were fitted to the rows.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc
from scipy.stats import binomtest

_Floats = NDArray[np.float64]


class Accepted(NamedTuple):
    """How many of ``rows`` rows a threshold accepts, and how many of those are right."""

    rows: int
    kept: int
    right: int

    @property
    def coverage(self) -> float:
        """The share of rows that are accepted."""
        return self.kept / self.rows

    @property
    def accuracy(self) -> float:
        """The share of the accepted rows that are right; NaN if there are none."""
        return self.right / self.kept if self.kept else math.nan

    @property
    def coverage_interval(self) -> tuple[float, float]:
        """The coverage's 95 % interval (Wilson 1927)."""
        return wilson_interval(self.kept, self.rows)

    @property
    def accuracy_interval(self) -> tuple[float, float]:
        """The accuracy's 95 % interval (Wilson 1927); (0, 1) if nothing is accepted."""
        return wilson_interval(self.right, self.kept) if self.kept else (0.0, 1.0)


def accepted(confidence: ArrayLike, correct: ArrayLike, threshold: float) -> Accepted:
    """Apply the threshold to these rows. Raises ``ValueError`` for malformed arrays."""
    sure, right = _checked(confidence, correct)
    kept = sure >= threshold
    return Accepted(len(sure), int(kept.sum()), int(right[kept].sum()))


def wilson_interval(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """The score interval of a proportion (Wilson 1927)."""
    interval = binomtest(successes, trials).proportion_ci(level, method="wilson")
    return float(interval.low), float(interval.high)


def coverage_threshold(confidence: ArrayLike, coverage: float) -> float:
    """The highest threshold that accepts at least the share ``coverage`` of the rows.

    It accepts more only where confidences are tied. Raises ``ValueError`` unless
    0 < coverage < 1.
    """
    sure, _ = _checked(confidence, np.ones(np.shape(confidence)))
    share = _share(coverage, "coverage")
    # Rounding first keeps 0.07 · 100 = 7.000000000000001 from asking for 8 rows.
    return float(np.sort(sure)[-math.ceil(round(share * len(sure), 6))])


def accuracy_threshold(
    confidence: ArrayLike, correct: ArrayLike, accuracy: float, *, level: float = 0.95
) -> float | None:
    """The lowest threshold shown to give ``accuracy`` among accepted rows, or None.

    Selection with guaranteed risk (Geifman and El-Yaniv 2017) by fixed-sequence tests: from
    high confidence down, the n most confident rows (ties together) pass if the exact binomial
    test (Clopper and Pearson 1934) of "right with a probability of at most ``accuracy``"
    rejects, P(Binomial(n, accuracy) ≥ right) ≤ ε; the first failure ends the sequence. As one
    error among the few most confident rows would end it at once, J sequences begin at 1, 2,
    4 … times the fewest rows that can pass, each with ε = (1 − level)/J, and the one that
    gets furthest counts. J depends only on the number of rows, accuracy and level.

    The module's docstring states the guarantee. Raises ``ValueError`` for malformed arrays
    and unless 0 < accuracy < 1.
    """
    sure, right = _checked(confidence, correct)
    wanted = _share(accuracy, "accuracy")
    risk = 1 - _share(level, "level")
    starts = _starts(len(sure), wanted, risk)
    if not starts:
        return None
    levels, kept, passed = _tested(sure, right, wanted, risk / len(starts))
    reached = -1
    for start in starts:
        first = int(np.searchsorted(kept, start))
        failures = np.flatnonzero(~passed[first:])
        last = (first + int(failures[0]) if len(failures) else len(passed)) - 1
        if last >= first:
            reached = max(reached, last)
    return None if reached < 0 else float(levels[reached])


def attainable_accuracy(confidence: ArrayLike, correct: ArrayLike, *, level: float = 0.95) -> float:
    """The highest accuracy, in thousandths, for which a threshold exists; 0 if there is none."""
    for thousandths in range(999, 0, -1):
        if accuracy_threshold(confidence, correct, thousandths / 1000, level=level) is not None:
            return thousandths / 1000
    return 0.0


def _starts(rows: int, accuracy: float, risk: float) -> list[int]:
    """How many rows each sequence starts with; empty if no number of rows could pass."""

    def fewest(sequences: int) -> int:
        # With all of n right the test's p-value is accuracy^n.
        return math.ceil(math.log(risk / sequences) / math.log(accuracy))

    if fewest(1) > rows:
        return []
    sequences = 1
    while fewest(sequences + 1) * 2**sequences <= rows:
        sequences += 1
    return [fewest(sequences) * 2**power for power in range(sequences)]


def _tested(
    sure: _Floats, right: NDArray[np.bool_], accuracy: float, risk: float
) -> tuple[_Floats, NDArray[np.int64], NDArray[np.bool_]]:
    """Per distinct confidence, from high to low: rows at or above it, and whether they pass."""
    levels, counts = np.unique(-sure, return_counts=True)
    kept = np.cumsum(counts)
    successes = np.cumsum(right[np.argsort(-sure, kind="stable")])[kept - 1]
    # P(Binomial(n, a) ≥ k) = I_a(k, n − k + 1) for k > 0.
    p_value = betainc(np.maximum(successes, 1), kept - np.maximum(successes, 1) + 1, accuracy)
    return -levels, kept, (p_value <= risk) & (successes > 0)


def _checked(confidence: ArrayLike, correct: ArrayLike) -> tuple[_Floats, NDArray[np.bool_]]:
    sure, right = np.asarray(confidence, dtype=np.float64), np.asarray(correct)
    if sure.ndim != 1 or sure.shape != right.shape or not len(sure):
        raise ValueError(
            "confidence and correct must have one value for each of the same rows, found shapes "
            f"{sure.shape} and {right.shape}"
        )
    if not np.isfinite(sure).all():
        raise ValueError("confidence must be finite")
    return sure, right.astype(bool)


def _share(value: float, name: str) -> float:
    if not 0 < value < 1:
        raise ValueError(f"{name} must lie between 0 and 1, both excluded; found {value:g}")
    return value
