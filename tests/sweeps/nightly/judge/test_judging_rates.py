"""How often the judge errs, and what it finds, over many simulated nights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from sweeps.nightly.judge.judgement import judge, overall
from sweeps.nightly.judge.rules import Judge
from sweeps.nightly.judge.steps import steps
from sweeps.nightly.judge.trends import trends
from tests.sweeps.nightly.frames import (
    CELLS,
    METRICS,
    MINIMUM,
    SHAPE,
    at_most,
    chance,
    frame,
    paces,
    scales,
)

JUDGE = Judge()
ONE_NIGHT = frame().assign(night="2026-11-01", git="")
NO_TRENDS, NO_STEPS = trends(ONE_NIGHT, JUDGE), steps(ONE_NIGHT, JUDGE)
MANY = (3, 5, 3, 3)
"""Datasets, methods, calibrators and metrics of a night with 135 values."""
Nights = tuple[NDArray[np.float64], NDArray[np.float64]]
"""The values of baselines and of the nights judged by them, each its own."""


def flagged(nights: Nights, level: float = JUDGE.baseline_level) -> NDArray[np.bool_]:
    """Which values are called better or worse: the judge's procedure for many nights at once.

    A test below compares it with the judge itself, so that its rates are those of the judge.
    """
    before, after = (values.reshape(len(values), -1, values.shape[-1]) for values in nights)
    seeds, minimum = before.shape[-1], np.broadcast_to(MINIMUM, nights[0].shape[1:-1]).ravel()
    differences = after - before
    mean = differences.mean(-1)
    deviation = np.maximum(differences.std(-1, ddof=1), minimum / 2)
    paired = 2 * stats.t.sf(np.abs(mean) / deviation * math.sqrt(seeds), seeds - 1)
    moved = np.sqrt((differences**2).mean(-1)) >= minimum * (1 - 1e-9)
    forward = differences * np.sign(mean)[..., None]
    kept = np.maximum((forward.sum(-1) - forward.max(-1)) / (seeds - 1), 0)
    spread = np.maximum(before.std(-1, ddof=1), minimum / 2)
    outside = 2 * stats.t.sf(kept / spread / math.sqrt(2 / seeds), seeds - 1)
    changed = (differences != 0).any(-1)
    found = (step_down(paired, moved) < 0.75 * level) | (step_down(outside, changed) < 0.25 * level)
    found &= np.abs(mean) >= minimum * (1 - 1e-9)
    return np.asarray(found.reshape(nights[0].shape[:-1]))


def step_down(p: NDArray[np.float64], members: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Holm's adjusted p-values within every row; 2 for what is no member."""
    given = np.where(members, p, 2.0)
    order = np.argsort(given, axis=1)
    factors = np.maximum(members.sum(1, keepdims=True) - np.arange(p.shape[1]), 1)
    climbing = np.maximum.accumulate(np.take_along_axis(given, order, 1) * factors, axis=1)
    adjusted = np.take_along_axis(climbing, np.argsort(order, axis=1), 1)
    return np.where(members, adjusted, 2.0)


def fresh(
    count: int,
    seeds: int,
    quiet: float = 0.0,
    tails: float = 5.0,
    shape: tuple[int, ...] = MANY,
    entropy: int = 0,
) -> Nights:
    """Nights with fresh seeds and no change; a share of their trainings is all but the same."""
    rng = np.random.default_rng(entropy)
    before, after = np.empty((count, *shape, seeds)), np.empty((count, *shape, seeds))
    for night in range(count):
        spread = scales(rng, shape)
        before[night], after[night] = (chance(rng, spread, seeds, tails) for _ in range(2))
        still = rng.random(shape[:2]) < quiet
        after[night][still] = before[night][still] + 0.01 * after[night][still]
    return before, after


@pytest.mark.parametrize(
    ("seeds", "quiet", "tails"),
    [(3, 0, 5), (5, 0, 3), (5, 0, 100), (5, 0.8, 5), (8, 0, 3), (8, 0, 100), (8, 0.8, 100)],
)
def test_fresh_seeds_raise_no_alarm_too_often(seeds: int, quiet: float, tails: float) -> None:
    """2000 nights, or 40 times 50, of 135 correlated values without any change."""
    alarms = flagged(fresh(2000, seeds, quiet, tails, entropy=seeds)).reshape(2000, -1).any(1)
    assert alarms.sum() <= at_most(JUDGE.baseline_level, 2000)
    assert alarms.mean() < JUDGE.level


def test_one_baseline_for_many_nights_is_right_on_average() -> None:
    """A baseline is kept for weeks: its own luck is in all verdicts, for better or worse."""
    before, _ = fresh(100, 5, shape=SHAPE, entropy=1)
    rates = []
    for night in range(100):
        rng = np.random.default_rng(night)
        spread = np.maximum(before[night].std(-1, ddof=1), 1e-3)
        before_drawn = chance(rng, spread, 5)
        after = np.stack([chance(rng, spread, 5) for _ in range(50)])
        alarms = flagged((np.broadcast_to(before_drawn, after.shape), after))
        rates.append(alarms.reshape(50, -1).any(1).mean())
    assert np.mean(rates) < JUDGE.baseline_level


@pytest.mark.parametrize("rows", [50, 100])
@pytest.mark.parametrize("seeds", [3, 5])
def test_coarse_counts_keep_the_level(rows: int, seeds: int) -> None:
    """Errors of few test rows often differ by the same number on every seed, by chance."""
    rng = np.random.default_rng(rows + seeds)
    rates = np.broadcast_to(rng.uniform(0.02, 0.3, (2000, 20, 1)), (2000, 20, seeds))
    before, after = np.zeros((2, 2000, 20, 3, seeds))
    before[:, :, 2], after[:, :, 2] = (rng.binomial(rows, rates) / rows for _ in range(2))
    alarms = flagged((before, after)).any((1, 2))
    assert alarms.sum() <= at_most(JUDGE.baseline_level, 2000)


def test_fifty_nights_through_the_judge_itself() -> None:
    """Fresh seeds, no change, a machine that is not always as fast."""
    rng = np.random.default_rng(11)
    alarms = 0
    for before, after in zip(*fresh(50, 5, shape=SHAPE, entropy=12), strict=True):
        lines = judge(frame(after, pace=paces(rng, 5)), frame(before), JUDGE)
        alarms += overall(lines, NO_TRENDS, NO_STEPS, complete=True) == "regression"
    assert alarms / 50 < JUDGE.level


def test_many_nights_are_judged_as_the_judge_does() -> None:
    before, after = fresh(15, 5, quiet=0.7, shape=SHAPE, entropy=6)
    # What the frame itself varies by is the same on both sides, but part of the spread.
    base = np.stack([frame()[name].to_numpy().reshape(*SHAPE[:3], 5) for name in METRICS], axis=3)
    after[np.random.default_rng(5).random((15, *SHAPE)) < 0.1] += 0.06
    expected = flagged((base + before, base + after))
    assert 5 < expected.sum() < expected.size / 2
    for number in range(15):
        lines = judge(frame(after[number]), frame(before[number]), JUDGE)
        said = lines.set_index(["metric", "dataset", "row", "calibrator"])["verdict"]
        for cell, flags in zip(CELLS, expected[number].reshape(-1, 3), strict=True):
            for metric, flag in zip(METRICS, flags, strict=True):
                assert (said[metric, *cell] in ("better", "worse")) == flag


def power(nights: Nights, *places: Any) -> float:
    """The share of nights in which something is found at the places, and nothing elsewhere."""
    found = flagged(nights)
    here = np.zeros(found.shape[1:], dtype=bool)
    here[places] = True
    assert found[:, ~here].any(1).mean() <= JUDGE.level
    return float(found[:, here].any(1).mean())


@pytest.mark.parametrize(("seeds", "effect", "least"), [(5, 0.02, 0.85), (8, 0.02, 0.99)])
def test_a_map_that_does_nothing_any_more_is_found(seeds: int, effect: float, least: float) -> None:
    """Only that calibrator's ECE and NLL change, the ECE by a third of ``effect`` to all of it."""
    before, luck = fresh(300, seeds)
    after = before.copy()
    after[:, :, :, 1, :2] = 0.7 * before[:, :, :, 1, :2] + 0.7 * luck[:, :, :, 1, :2]
    rng = np.random.default_rng(1)
    after[:, :, :, 1, 0] += effect * rng.uniform(0.3, 1.0, (300, 3, 5, 1))
    assert power((before, after), slice(None), slice(None), 1) >= least


@pytest.mark.parametrize("others", ["identical", "fresh"])
@pytest.mark.parametrize("seeds", [5, 8])
def test_a_training_that_breaks_on_every_seed_in_another_way_is_found(
    seeds: int, others: str
) -> None:
    """As with a learning rate a hundred times too high: large, and with a large spread."""
    before, luck = fresh(300, seeds)
    after = before.copy() if others == "identical" else luck
    harm = np.abs(np.random.default_rng(2).normal(0, 0.2, (300, 1, 1, seeds)))
    after[:, 0, 0] += harm * np.array([1.0, 3.0, 0.5])[:, None]
    assert power((before, after), 0, 0) >= 0.9
    differences = (after - before)[:, 0, 0, 0]
    t = differences.mean(-1) / differences.std(-1, ddof=1) * math.sqrt(seeds)
    alone = 2 * stats.t.sf(np.abs(t), seeds - 1) < JUDGE.level / 135
    assert alone.mean() < 0.5  # the paired test would not do


@pytest.mark.parametrize(("seeds", "shift", "least"), [(5, 3, 0.95), (8, 2, 0.95)])
def test_a_shift_on_every_seed_is_found(seeds: int, shift: float, least: float) -> None:
    """Of one training, by multiples of the smallest change that matters, all else identical."""
    before, luck = fresh(300, seeds)
    after = before.copy()
    after[:, 0, 0] = 0.95 * before[:, 0, 0] + 0.3 * luck[:, 0, 0] + shift * MINIMUM[:, None]
    assert power((before, after), 0, 0) >= least
