"""The verdict on a night: what must be named, what must not, and how often it errs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import stats
from statsmodels.stats.multitest import multipletests

from sweeps.nightly.judge.judgement import judge, overall
from sweeps.nightly.judge.rules import VERDICT_COLUMNS, Judge
from sweeps.nightly.judge.steps import steps
from sweeps.nightly.judge.trends import trends
from sweeps.nightly.judge.verdict import ORDER
from tests.sweeps.nightly.frames import (
    CELLS,
    METRICS,
    SHAPE,
    chance,
    frame,
    line,
    only,
    paces,
    scales,
)

JUDGE = Judge()
ONE_NIGHT = frame().assign(night="2026-11-01", git="")
NO_TRENDS, NO_STEPS = trends(ONE_NIGHT, JUDGE), steps(ONE_NIGHT, JUDGE)
BROKEN = ("digits", "focal", "temp", "ece")
KEYS = ["dataset", "row", "calibrator", "metric"]


def word(tonight: pd.DataFrame, baseline: pd.DataFrame | None = None, **how: Any) -> str:
    lines = judge(tonight, frame() if baseline is None else baseline, JUDGE, **how)
    return overall(lines, NO_TRENDS, NO_STEPS, complete=True)


def verdicts(lines: pd.DataFrame) -> dict[tuple[str, ...], str]:
    return dict(zip(zip(*(lines[key] for key in KEYS), strict=True), lines["verdict"], strict=True))


def test_an_unchanged_night_is_identical_however_long_it_took() -> None:
    slower = frame(pace=np.random.default_rng(0).uniform(0.9, 1.1, (2, 3, 5)))
    lines = judge(slower, frame(), JUDGE)
    assert list(lines.columns) == VERDICT_COLUMNS
    assert len(lines) == len(CELLS) * len(METRICS) + 7
    values = lines[lines["metric"] != "cost"]
    assert set(values["verdict"]) == {"identical"}
    assert values["p"].isna().all()
    assert not values["difference"].any()
    assert overall(lines, NO_TRENDS, NO_STEPS, complete=True) == "identical"


def test_p_values_are_those_of_two_tests_over_what_counts() -> None:
    """scipy's paired test of what moved enough, the baseline's spread, statsmodels' Holm."""
    rng = np.random.default_rng(3)
    changes = chance(rng, 3 * scales(rng), 6)
    changes[0, 0] /= 1000  # differs, but by nothing that matters
    tonight, before = frame(changes, seeds=6), frame(seeds=6)
    lines = judge(tonight, before, JUDGE)
    values = lines[lines["metric"] != "cost"]
    paired, spread, moved = [], [], []
    for row in values.itertuples():
        ours, theirs = (
            night[(night[KEYS[:3]] == [row.dataset, row.row, row.calibrator]).all(axis=1)][
                row.metric
            ].to_numpy()
            for night in (tonight, before)
        )
        differences, half = ours - theirs, JUDGE.minimum[row.metric] / 2
        known = stats.ttest_rel(ours, theirs)
        t = differences.mean() / (half / math.sqrt(6))
        floored = differences.std(ddof=1) < half
        paired.append(2 * stats.t.sf(abs(t), 5) if floored else known.pvalue)
        if not floored:
            assert (row.low, row.high) == pytest.approx(tuple(known.confidence_interval(0.95)))
        assert row.difference == pytest.approx(differences.mean())
        assert (row.baseline, row.tonight) == pytest.approx((theirs.mean(), ours.mean()))
        left_out = [np.delete(differences, seed).mean() for seed in range(6)]
        least = min(left_out, key=lambda mean: mean * np.sign(differences.mean()))
        kept = abs(least) if least * differences.mean() > 0 else 0.0
        t = kept / (max(theirs.std(ddof=1), half) * math.sqrt(2 / 6))
        spread.append(2 * stats.t.sf(t, 5))
        moved.append(math.sqrt((differences**2).mean()) >= 2 * half)
    assert 5 < sum(moved) < len(moved)
    each = np.minimum(np.minimum(np.array(paired) / 0.75, np.array(spread) / 0.25), 1)
    np.testing.assert_allclose(values["p"], each, rtol=1e-9)
    costs = list(lines[lines["metric"] == "cost"]["p"].dropna() * 0.75)
    assert costs == []  # the same seconds
    first, second = np.ones(len(moved)), multipletests(spread, method="holm")[1]
    first[moved] = multipletests(np.array(paired)[moved], method="holm")[1]
    expected = np.minimum(np.minimum(first / 0.75, second / 0.25), 1)
    np.testing.assert_allclose(values["p_holm"], expected, rtol=1e-9)


def test_five_points_on_every_seed_are_worse_among_many_noisy_cells() -> None:
    """An error is a count: the differences have no spread, and yet this must be named."""
    rng = np.random.default_rng(1)
    changes = chance(rng, 2 * scales(rng), 5)
    changes[1, 2, 1, 2] = 0.05
    lines = judge(frame(changes), frame(), JUDGE)
    found = line(lines, "digits", "bo4sc", "temp", "error")
    assert found.p == pytest.approx(2 * stats.t.sf(0.05 / (0.005 / math.sqrt(5)), 4) / 0.75)
    assert lines["p_holm"].notna().sum() > 30
    assert found.verdict == "worse"
    changes[1, 2, 1, 2] = -0.05
    fixed = judge(frame(changes), frame(), JUDGE)
    assert line(fixed, "digits", "bo4sc", "temp", "error").verdict == "better"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (0.01, "worse"),  # just enough, on every seed
        (-0.01, "better"),
        (0.0099, "no change shown"),  # as sure, but too small to matter
        ([0.1, -0.02, 0.0, 0.0, 0.0], "no change shown"),  # large, but one seed's doing
    ],
)
def test_worse_needs_both_size_and_certainty(change: Any, expected: str) -> None:
    lines = judge(frame(only(*BROKEN, change)), frame(), JUDGE)
    assert line(lines, *BROKEN).verdict == expected
    changed = {key for key, said in verdicts(lines).items() if said != "identical"}
    assert changed == {BROKEN}


def test_what_moves_little_takes_nothing_from_the_rest() -> None:
    small = np.random.default_rng(0).normal(0, 1e-5, (*SHAPE, 5))
    large = only(*BROKEN, np.array([0.03, 0.025, 0.02, 0.03, 0.02]))
    alone, among = (judge(frame(large + extra), frame(), JUDGE) for extra in (0.0, small))
    assert line(alone, *BROKEN).p_holm == pytest.approx(line(among, *BROKEN).p_holm, rel=0.1)
    assert line(among, *BROKEN).verdict == "worse"
    assert set(among["verdict"]) == {"no change shown", "worse", "identical"}


def replaced(night: pd.DataFrame, cell: tuple[str, ...], metric: str, values: Any) -> pd.DataFrame:
    changed = night.copy()
    here = (changed[KEYS[: len(cell)]] == list(cell)).all(axis=1)
    changed.loc[here, metric] = values
    return changed


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("seeds", [1, 5])
def test_what_is_no_number_or_infinite_and_was_finite_is_worse(bad: float, seeds: int) -> None:
    cell = ("digits", "focal", "temp")
    values = frame().query("dataset == 'digits' and row == 'focal' and calibrator == 'temp'")
    broken = replaced(frame(), cell, "nll", [bad] * seeds + list(values["nll"])[seeds:])
    assert line(judge(broken, frame(), JUDGE), *cell, "nll").verdict == "worse"
    assert line(judge(frame(), broken, JUDGE), *cell, "nll").verdict == "better"
    assert line(judge(broken, broken, JUDGE), *cell, "nll").verdict == "identical"
    assert word(broken) == "regression"


def test_a_map_that_gives_zeros_is_infinite_by_chance() -> None:
    """Which cells of such a calibrator have met their zero is no news; that all have may be."""
    cell, other = ("digits", "focal", "temp"), ("blobs", "focal", "temp")
    finite = frame(seeds=8)
    here = finite.query("dataset == 'digits' and row == 'focal' and calibrator == 'temp'")["nll"]
    base = replaced(finite, other, "nll", math.inf)
    some = replaced(base, cell, "nll", [math.inf] * 3 + list(here)[3:])
    lines = judge(some, base, JUDGE)
    found = line(lines, *cell, "nll")
    assert found.verdict == "no change shown"
    assert found.p == pytest.approx(stats.fisher_exact([[0, 8], [3, 5]]).pvalue / 0.75)
    every = replaced(base, cell, "nll", math.inf)
    found = line(judge(every, base, JUDGE), *cell, "nll")
    assert found.verdict == "worse"
    assert found.p == pytest.approx(2 / math.comb(16, 8) / 0.75)
    assert line(judge(base, every, JUDGE), *cell, "nll").verdict == "better"


def test_an_infinite_seed_does_not_hide_what_the_others_show() -> None:
    """The seeds that are finite in both nights are compared as always; the worse counts."""
    cell = ("digits", "focal", "temp")
    finite = frame(seeds=8)
    here = finite.query("dataset == 'digits' and row == 'focal' and calibrator == 'temp'")["nll"]
    values = list(here)
    base = replaced(finite, cell, "nll", [math.inf, *values[1:]])
    worse = replaced(finite, cell, "nll", [math.inf, *(9.0 + value for value in values[1:])])
    found = line(judge(worse, base, JUDGE), *cell, "nll")
    assert (found.verdict, found.pairs) == ("worse", 7)
    assert found.difference == pytest.approx(9.0)
    assert (found.baseline, found.tonight) == pytest.approx(
        (np.mean(values[1:]), np.mean(values[1:]) + 9.0)
    )
    assert line(judge(base, worse, JUDGE), *cell, "nll").verdict == "better"
    # On more seeds infinite, though the rest is better: what is worse decides, at half the level.
    mixed = [math.inf] * 5 + [value - 9.0 for value in values[5:]]
    found = line(judge(replaced(finite, cell, "nll", mixed), base, JUDGE), *cell, "nll")
    assert found.difference == math.inf
    expected = stats.fisher_exact([[1, 7], [5, 3]]).pvalue
    assert found.p == pytest.approx(2 * expected / 0.75)
    assert found.verdict == "no change shown"
    # With too few finite seeds there is only the other question.
    few = [math.inf] * 6 + [value + 9.0 for value in values[6:]]
    found = line(judge(replaced(finite, cell, "nll", few), base, JUDGE), *cell, "nll")
    assert found.p == pytest.approx(stats.fisher_exact([[1, 7], [6, 2]]).pvalue / 0.75)


def test_what_is_missing_makes_a_night_incomplete_and_what_is_new_does_not() -> None:
    whole = frame()
    assert word(whole.head(0)) == "incomplete"
    assert set(judge(whole.head(0).astype(object), whole, JUDGE)["verdict"]) == {"missing"}
    gone = whole[whole["row"] != "focal"]
    said = verdicts(judge(gone, whole, JUDGE))
    assert {said for key, said in said.items() if key[1] == "focal"} == {"missing"}
    assert {said for key, said in said.items() if key[1] != "focal"} == {"identical"}
    assert word(gone) == "incomplete"
    said = verdicts(judge(whole, gone, JUDGE))
    assert {said for key, said in said.items() if key[1] == "focal"} == {"new"}
    assert word(whole, gone) == "fine"
    one_seed_less = whole.drop(index=whole.index[0])
    found = judge(one_seed_less, whole, JUDGE)
    assert line(found, "blobs", "standard", "identity", "ece").verdict == "missing"
    assert word(one_seed_less) == "incomplete"
    assert word(whole, one_seed_less) == "identical"


def test_a_seed_that_is_missing_does_not_hide_what_the_others_show() -> None:
    worse = frame(only(*BROKEN, 0.05))
    lacking = worse[~((worse["calibrator"] == "temp") & (worse["seed"] == 100))]
    found = line(judge(lacking, frame(), JUDGE), *BROKEN)
    assert (found.verdict, found.pairs) == ("worse", 4)


def test_two_seeds_are_too_few_unless_nothing_changed() -> None:
    changed = frame(only(*BROKEN, 0.5), seeds=2)
    said = verdicts(judge(changed, frame(seeds=2), JUDGE))
    assert said[BROKEN] == "too few seeds"
    assert word(changed, frame(seeds=2)) == "incomplete"
    assert word(frame(seeds=2, pace=1.01), frame(seeds=2)) == "identical"


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([3, 5]), st.floats(0, 4))
def test_order_is_nothing_and_the_opposite_change_has_the_opposite_verdict(
    entropy: int, seeds: int, size: float
) -> None:
    rng = np.random.default_rng(entropy)
    changes = chance(rng, size * scales(rng), seeds)
    changes[rng.random(SHAPE) < 0.3] = 0.0
    changes[rng.random(SHAPE) < 0.2] += rng.choice([-0.2, 0.2])
    pace, speed, before = paces(rng, seeds), rng.uniform(0.5, 2), frame(seeds=seeds)
    tonight = frame(changes, seeds=seeds, pace=pace, speed=speed)
    lines = judge(tonight, before, JUDGE)
    shuffled = (night.sample(frac=1, random_state=entropy) for night in (tonight, before))
    pd.testing.assert_frame_equal(lines, judge(*shuffled, JUDGE))
    back = judge(frame(-changes, seeds=seeds, pace=1 / pace, speed=1 / speed), before, JUDGE)
    opposite = {"worse": "better", "better": "worse"}
    assert [opposite.get(said, said) for said in lines["verdict"]] == list(back["verdict"])
    values = lines["metric"] != "cost"
    np.testing.assert_allclose(
        lines["difference"][values], -back["difference"][values], rtol=1e-6, atol=1e-12
    )
    np.testing.assert_allclose(lines["p_holm"], back["p_holm"], rtol=1e-6)
    assert set(lines["verdict"]) <= set(ORDER)
    assert set(judge(before.sample(frac=1), before, JUDGE)["verdict"]) == {"identical"}


def slower(
    cells: Any, factor: float, *, speed: float = 1.0, busy: float = 1.0, seed: int = 0
) -> pd.DataFrame:
    pace = np.exp(np.random.default_rng(seed).normal(0, 0.02, (2, 3, 5)))
    pace[cells] *= factor
    return frame(pace=pace, speed=speed, busy=busy)


def costs(lines: pd.DataFrame) -> dict[tuple[str, str], str]:
    rows = lines[lines["metric"] == "cost"]
    assert set(rows["calibrator"]) == {""}
    return dict(zip(zip(rows["dataset"], rows["row"], strict=True), rows["verdict"], strict=True))


def test_one_training_that_takes_half_as_long_again_is_worse() -> None:
    lines = judge(slower((1, 2), 1.5), frame(), JUDGE)
    said = costs(lines)
    assert said.pop(("digits", "bo4sc")) == "worse"
    assert set(said.values()) == {"no change shown"}
    found = line(lines, "digits", "bo4sc", "", "cost")
    assert found.difference == pytest.approx(0.5, abs=0.05)
    assert found.low < found.difference < found.high
    assert found.pairs == 5
    back = costs(judge(frame(), slower((1, 2), 1.5), JUDGE))
    assert back["digits", "bo4sc"] == "better"


@pytest.mark.parametrize(
    ("factor", "speed", "expected"),
    [
        (2.0, 2.0, "no change shown"),  # a slower machine, or one that runs at a lower clock rate
        (0.5, 0.5, "no change shown"),
        (1.05, 1.0, "no change shown"),  # less than what matters
        (1.2, 1.0, "worse"),  # all code is slower, on the same machine
        (1.2, 0.5, "worse"),  # or on a faster one
        (0.8, 1.0, "better"),
    ],
)
def test_a_machine_that_is_slower_is_no_regression_and_code_is(
    factor: float, speed: float, expected: str
) -> None:
    said = costs(judge(slower(..., factor, speed=speed), frame(), JUDGE))
    assert said["all sweeps", "every row"] == expected


@pytest.mark.parametrize("side", ["tonight", "baseline"])
def test_a_busy_machine_gives_no_verdict(side: str) -> None:
    nights = slower(..., 2.0, busy=3.0), frame()
    lines = judge(*(nights if side == "tonight" else nights[::-1]), JUDGE)
    assert set(costs(lines).values()) == {"busy machine"}
    assert overall(lines, NO_TRENDS, NO_STEPS, complete=True) == "identical"


def test_seconds_that_were_not_measured_are_not_compared() -> None:
    for unknown in (0.0, math.nan):
        lines = judge(slower(..., 1.1), frame().assign(reference=unknown), JUDGE)
        assert set(costs(lines).values()) <= {"too few seeds", "new"}
        assert overall(lines, NO_TRENDS, NO_STEPS, complete=True) == "identical"


def test_overall_says_the_worst() -> None:
    fine = judge(frame(only(*BROKEN, 1e-5)), frame(), JUDGE)
    worse = judge(frame(only(*BROKEN, 0.05)), frame(), JUDGE)
    drifting = NO_TRENDS.assign(verdict="drifting")
    assert overall(fine, NO_TRENDS, NO_STEPS, complete=True) == "fine"
    assert overall(fine, NO_TRENDS, NO_STEPS, complete=False) == "incomplete"
    assert overall(fine, drifting, NO_STEPS, complete=True) == "regression"
    assert overall(worse, NO_TRENDS, NO_STEPS, complete=True) == "regression"
    assert overall(worse, NO_TRENDS, NO_STEPS, complete=False) == "regression"
    assert overall(fine.head(0), NO_TRENDS, NO_STEPS, complete=True) == "incomplete"
    assert word(slower((0, 0), 3.0)) == "regression"


def test_bad_frames_and_settings_are_named() -> None:
    with pytest.raises(ValueError, match=r"tonight: missing column 'nll'"):
        judge(frame().drop(columns="nll"), frame(), JUDGE)
    twice = pd.concat([frame(), frame().head(1)])
    with pytest.raises(
        ValueError, match="baseline: duplicate small, blobs, standard, identity, 100;"
    ):
        judge(frame(), twice, JUDGE)
    for wrong in ({"level": 0}, {"minimum": {}}, {"minimum": {"ece": 0}}, {"cost": -1}, {"x": 1}):
        with pytest.raises(ValidationError):
            Judge.model_validate(wrong)
    with pytest.raises(ValidationError, match="'accuracy' is not judged"):
        Judge(minimum={"accuracy": 0.01})
    assert JUDGE.baseline_level + JUDGE.trend_level + JUDGE.step_level == pytest.approx(JUDGE.level)
