"""A slow drift is named, chance is not."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from sweeps.nightly.judge.judgement import judge
from sweeps.nightly.judge.rules import Judge
from sweeps.nightly.judge.trends import trends
from tests.sweeps.nightly.frames import METRICS, SHAPE, at_most, chance, frame, line, scales

JUDGE = Judge()
DRIFTING = ("digits", "focal", "temp", "ece")
PLACE = (1, 1, 1, 0)


def history(changes: np.ndarray) -> pd.DataFrame:
    """Nights × SHAPE × seeds of changes as the history has them."""
    seeds = changes.shape[-1]
    nights = [f"2026-11-{day + 1:02d}" for day in range(len(changes))]
    table = pd.concat([frame(seeds=seeds)] * len(nights), ignore_index=True)
    table.insert(0, "night", np.repeat(nights, len(table) // max(len(nights), 1)))
    for place, metric in enumerate(METRICS):
        table[metric] += changes[..., place, :].ravel()
    return table.sample(frac=1, random_state=0)


def of_cell(table: pd.DataFrame) -> pd.Series:
    return (table[["dataset", "row", "calibrator"]] == list(DRIFTING[:3])).all(axis=1)


def noisy(rng: np.random.Generator, nights: int, seeds: int = 5) -> np.ndarray:
    """A night like any other every time: the same scales, fresh luck."""
    spread = scales(rng)
    return np.stack([chance(rng, spread, seeds) for _ in range(nights)])


def drifting(rng: np.random.Generator, total: float, seeds: int = 5) -> np.ndarray:
    changes = noisy(rng, 14, seeds)
    luck = 0.0065 * rng.standard_normal((14, seeds))
    changes[(slice(None), *PLACE)] = luck + np.linspace(0, total, 14)[:, None]
    return changes


def test_a_line_says_what_the_nights_say() -> None:
    changes = drifting(np.random.default_rng(0), 0.03)
    table = history(changes)
    found = line(trends(table, JUDGE), *DRIFTING)
    means = table[of_cell(table)].groupby("night")["ece"].mean().to_numpy()
    assert (found.nights, found.distinct) == (14, 14)
    assert (found.first, found.last) == pytest.approx((means[0], means[-1]))
    expected = stats.kendalltau(np.arange(14), means, method="exact")
    assert found.p == pytest.approx(expected.pvalue)
    pairs = itertools.combinations(range(14), 2)
    slope = np.median([(means[last] - means[first]) / (last - first) for first, last in pairs])
    assert found.slope == pytest.approx(slope)
    assert found.total == pytest.approx(13 * slope)
    assert found.verdict == "drifting"


def test_a_slow_drift_is_caught_though_no_night_is_worse_than_the_one_before() -> None:
    """0.02 of ECE in 14 nights: a quarter of the seeds' own deviation per night."""
    caught = others = worse = 0
    for entropy in range(50):
        changes = drifting(np.random.default_rng(entropy), 0.02)
        lines = trends(history(changes), JUDGE)
        mine = line(lines, *DRIFTING).verdict == "drifting"
        caught += mine
        others += int((lines["verdict"] == "drifting").sum()) - mine
        if entropy == 0:
            for before, after in itertools.pairwise(changes):
                night = judge(frame(after), frame(before), JUDGE)
                worse += line(night, *DRIFTING).verdict == "worse"
    assert caught >= 0.9 * 50
    assert worse == 0
    assert others <= at_most(JUDGE.trend_level, 50)


@pytest.mark.parametrize("back", range(1, 7))
def test_a_drift_that_was_taken_back_is_over(back: int) -> None:
    """Ten nights up, and then the first night's values again."""
    changes = np.zeros((10 + back, *SHAPE, 5))
    changes[(slice(0, 10), *PLACE)] = np.linspace(0, 0.03, 10)[:, None]
    up = line(trends(history(changes[:10]), JUDGE), *DRIFTING)
    assert up.verdict == "drifting"
    assert line(trends(history(changes), JUDGE), *DRIFTING).verdict == "no change shown"


def test_the_other_way_is_better() -> None:
    changes = -drifting(np.random.default_rng(0), 0.03)
    assert line(trends(history(changes), JUDGE), *DRIFTING).verdict == "better"


def test_nights_without_change_have_no_trend() -> None:
    """Fresh luck every night, at a level at which errors can be counted."""
    lax = Judge(level=0.5)
    alarms = 0
    for entropy in range(60):
        lines = trends(history(noisy(np.random.default_rng(1000 + entropy), 9, 3)), lax)
        assert lines["p_holm"].notna().any()
        alarms += not set(lines["verdict"]) <= {"no change shown", "identical"}
    assert alarms <= at_most(lax.trend_level, 60)


def test_identical_nights_are_one_night() -> None:
    """Three results by chance, each kept for days but for rounding: no trend, however ordered."""
    rng = np.random.default_rng(0)
    changes = np.zeros((14, *SHAPE, 5))
    assert set(trends(history(changes), JUDGE)["verdict"]) == {"identical"}
    changes[5:] += 0.03
    changes[10:] += 0.03
    changes += rng.normal(0, 1e-6, changes.shape)
    lines = trends(history(changes), JUDGE)
    assert set(lines["distinct"]) == {3}
    assert set(lines["verdict"]) == {"no change shown"}
    assert lines["p"].to_numpy() == pytest.approx(1 / 3)
    assert lines["p_holm"].isna().all()  # three nights can show nothing, and take nothing


def test_a_drift_in_small_exact_steps_is_caught() -> None:
    """Every step is within rounding of the night before, and yet they add up."""
    changes = np.zeros((14, *SHAPE, 5))
    changes[(slice(None), *PLACE)] = np.linspace(0, 0.012, 14)[:, None]
    found = line(trends(history(changes), JUDGE), *DRIFTING)
    assert found.distinct == 7
    assert found.p == pytest.approx(2 / math.factorial(7))
    assert found.verdict == "drifting"


def test_a_drift_that_does_not_matter_is_left_alone() -> None:
    changes = np.zeros((14, *SHAPE, 5))
    changes[(slice(None), *PLACE)] = np.linspace(0, 0.009, 14)[:, None]
    found = line(trends(history(changes), JUDGE), *DRIFTING)
    assert found.p < 0.01
    assert found.verdict == "no change shown"


def test_only_the_last_nights_count() -> None:
    changes = np.zeros((20, *SHAPE, 5))
    changes[(slice(0, 7), *PLACE)] = np.linspace(-0.1, 0, 7)[:, None]
    found = line(trends(history(changes), JUDGE), *DRIFTING)
    assert (found.nights, found.verdict) == (14, "identical")
    long = line(trends(history(changes), Judge(trend_nights=20)), *DRIFTING)
    assert (long.nights, long.distinct, long.verdict) == (20, 7, "drifting")


def test_missing_infinite_and_new_values_are_left_out() -> None:
    table = history(drifting(np.random.default_rng(1), 0.03))
    here = of_cell(table)
    table.loc[here & (table["night"] == "2026-11-03"), "ece"] = math.inf
    table.loc[here & (table["night"] == "2026-11-05") & (table["seed"] == 100), "ece"] = math.nan
    table = table[~(here & (table["night"] == "2026-11-07"))].copy()
    found = line(trends(table, JUDGE), *DRIFTING)
    assert found.nights == 12
    assert found.verdict == "drifting"
    table.loc[of_cell(table), "ece"] = math.nan
    found = line(trends(table, JUDGE), *DRIFTING)
    assert (found.nights, found.verdict) == (0, "no change shown")
    with pytest.raises(ValueError, match="history: missing column 'night'"):
        trends(frame(), JUDGE)
    empty = trends(history(np.zeros((1, *SHAPE, 5))).head(0), JUDGE)
    assert len(empty) == 0
    assert "verdict" in empty
