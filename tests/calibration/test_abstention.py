"""Thresholds on the confidence: definitions, brute force, and the promise by simulation."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from calibration.abstention import (
    accepted,
    accuracy_threshold,
    attainable_accuracy,
    coverage_threshold,
    wilson_interval,
)

Draw = tuple[NDArray[np.float64], NDArray[np.bool_]]


def test_coverage_keeps_the_most_confident_share() -> None:
    confidence = np.random.default_rng(0).permutation(np.arange(1, 101) / 100)
    for share in (0.07, 0.5, 0.801, 0.99):
        threshold = coverage_threshold(confidence, share)
        assert (confidence >= threshold).sum() == math.ceil(round(share * 100, 6))
    tied = np.array([0.9, 0.9, 0.9, 0.5])
    assert coverage_threshold(tied, 0.3) == 0.9


def test_accepted_counts_rows_at_or_above_the_threshold() -> None:
    found = accepted([0.9, 0.8, 0.8, 0.3], [True, False, True, True], 0.8)
    assert (found.rows, found.kept, found.right) == (4, 3, 2)
    assert (found.coverage, found.accuracy) == (0.75, 2 / 3)
    assert found.accuracy_interval == wilson_interval(2, 3)
    nothing = accepted([0.5], [True], 0.6)
    assert math.isnan(nothing.accuracy)
    assert nothing.accuracy_interval == (0.0, 1.0)


def test_wilson_matches_its_formula() -> None:
    n, k, z = 50, 43, stats.norm.ppf(0.975)
    p = k / n
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    assert wilson_interval(k, n) == pytest.approx((centre - half, centre + half), abs=1e-12)


def test_too_few_rows_promise_nothing() -> None:
    """0.95^58 > 0.05 ≥ 0.95^59: 59 rows without an error are needed, and enough."""
    sure = np.linspace(0.6, 0.99, 59)
    assert accuracy_threshold(sure[:58], np.ones(58, bool), 0.95) is None
    assert accuracy_threshold(sure, np.ones(59, bool), 0.95) == sure[0]
    assert attainable_accuracy(sure, np.ones(59, bool)) == 0.95
    assert attainable_accuracy(sure, np.zeros(59, bool)) == 0.0


def test_every_prefix_of_a_sequence_passes_an_exact_test() -> None:
    """Followed by hand with scipy's binomial test; 100 rows leave room for three sequences.

    An early error ends the first, and from row 50 on there are too many.
    """
    rng = np.random.default_rng(1)
    confidence = np.sort(rng.uniform(0.5, 1, 100))[::-1]
    place = np.arange(100)
    correct = (place != 5) & ((place < 50) | (place % 3 > 0))
    wanted, risk, starts = 0.8, 0.05 / 3, (19, 38, 76)
    assert 0.8**19 <= risk < 0.8**18

    def passes(n: int) -> bool:
        test = stats.binomtest(int(correct[:n].sum()), n, wanted, alternative="greater")
        return bool(test.pvalue <= risk)

    assert not passes(starts[0])
    reached = starts[1]
    while passes(reached + 1):
        reached += 1
    assert 50 < reached < starts[2]
    assert not passes(starts[2])
    assert accuracy_threshold(confidence, correct, wanted) == confidence[reached - 1]
    shuffled = rng.permutation(100)
    assert (
        accuracy_threshold(confidence[shuffled], correct[shuffled], wanted)
        == confidence[reached - 1]
    )


def calibrated(rng: np.random.Generator, rows: int) -> Draw:
    confidence = rng.uniform(0.5, 1, rows)
    return confidence, rng.random(rows) < confidence


def never_quite(rng: np.random.Generator, rows: int) -> Draw:
    return rng.uniform(0.5, 1, rows), rng.random(rows) < 0.8999


LEVELS = np.array([0.99, 0.9, 0.7, 0.5])
SHARES = np.array([0.3, 0.3, 0.2, 0.2])
RIGHT = np.array([0.97, 0.82, 0.7, 0.5])


def tied(rng: np.random.Generator, rows: int) -> Draw:
    """Four confidences only; the first two together are right in 0.895 of all cases."""
    level = rng.choice(4, rows, p=SHARES)
    return LEVELS[level], rng.random(rows) < RIGHT[level]


def wave(confidence: NDArray[np.float64]) -> NDArray[np.float64]:
    return 0.9 + 0.1 * np.sin(20 * np.pi * confidence)


def waves(rng: np.random.Generator, rows: int) -> Draw:
    """Accuracy that rises and falls around 0.9 as the threshold is lowered."""
    confidence = rng.random(rows)
    return confidence, rng.random(rows) < wave(confidence)


def tied_accuracy(threshold: float) -> float:
    kept = threshold <= LEVELS
    return float((SHARES * RIGHT)[kept].sum() / SHARES[kept].sum())


def waves_accuracy(threshold: float) -> float:
    return float(wave(np.linspace(threshold, 1, 20_000)).mean())


@pytest.mark.parametrize(
    ("draw", "true_accuracy", "found_at_least"),
    [
        (calibrated, lambda threshold: (threshold + 1) / 2, 0.5),
        (never_quite, lambda threshold: 0.8999, 0.0),
        (tied, tied_accuracy, 0.5),
        (waves, waves_accuracy, 0.0),
    ],
)
def test_the_promise_holds_in_95_percent_of_draws(
    draw: Callable[[np.random.Generator, int], Draw],
    true_accuracy: Callable[[float], float],
    found_at_least: float,
) -> None:
    rng = np.random.default_rng(2)
    draws, broken, found = 1000, 0, 0
    for _ in range(draws):
        threshold = accuracy_threshold(*draw(rng, 700), 0.9)
        if threshold is not None:
            found += 1
            broken += true_accuracy(threshold) < 0.9
    # A rate of exactly 5 % would exceed this once in a thousand times.
    assert broken <= stats.binom.ppf(0.999, draws, 0.05)
    assert found / draws >= found_at_least


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: coverage_threshold([0.5], 1.0), "coverage must lie between 0 and 1"),
        (lambda: accuracy_threshold([0.5], [True], 0.0), "accuracy must lie between 0 and 1"),
        (lambda: accuracy_threshold([0.5, 0.6], [True], 0.9), r"found shapes \(2,\) and \(1,\)"),
        (lambda: accepted([], [], 0.5), "one value for each"),
        (lambda: accepted([float("nan")], [True], 0.5), "must be finite"),
    ],
)
def test_malformed_input_is_named(call: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
