"""What a person reads first."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from sweeps.nightly.judge.judgement import judge
from sweeps.nightly.judge.rules import Judge
from sweeps.nightly.judge.sentences import sentences
from sweeps.nightly.judge.steps import steps
from sweeps.nightly.judge.trends import trends
from tests.sweeps.nightly.frames import SHAPE, frame, only

JUDGE = Judge()
WHERE = ("digits", "focal", "temp")
ONE_NIGHT = frame().assign(night="2026-11-01", git="")
SAME, NO_STEPS = trends(ONE_NIGHT, JUDGE), steps(ONE_NIGHT, JUDGE)


def said(tonight: pd.DataFrame, baseline: pd.DataFrame | None = None) -> list[str]:
    lines = judge(tonight, frame() if baseline is None else baseline, JUDGE)
    return sentences(lines, SAME, NO_STEPS)


def test_an_identical_night_says_so_and_no_more() -> None:
    assert said(frame(pace=1.05)) == ["Bit-identical to the baseline: 36 values."]
    lines = judge(frame(), frame(), JUDGE)
    (only_one,) = sentences(lines, SAME, NO_STEPS, complete=False)
    assert only_one.startswith("The night is not complete. Bit-identical")


def test_a_change_for_the_worse_is_named_with_its_numbers() -> None:
    found = said(frame(only(*WHERE, "ece", [0.026, 0.024, 0.027, 0.025, 0.028])))
    assert found[0] == "Regression: 1 value worse than the baseline, of 42 values compared."
    assert found[1].startswith("small · digits · focal + temp: ECE 0.0")
    assert "(+0.026, 95 % interval +0.020 to +0.032, p < 0.001 after correction" in found[1]
    assert found[1].endswith("over 1 test): worse")
    better = said(frame(only(*WHERE, "nll", -0.2)))
    assert better[0] == (
        "Nothing is shown to be worse than the baseline: of 36 values 35 are bit-identical, "
        "1 changed (1 better)."
    )
    assert "NLL" in better[1]
    assert "(−0.200, 95 % interval −0.212 to −0.188" in better[1]
    assert better[1].endswith(": better")


def test_what_is_no_number_is_called_that() -> None:
    broken = frame()
    broken.loc[(broken[["dataset", "row", "calibrator"]] == list(WHERE)).all(axis=1), "nll"] = (
        math.nan
    )
    (_, sentence) = said(broken)
    assert sentence.startswith("small · digits · focal + temp: NLL 0.3")
    outside = "(without a test, outside the false-alarm level): worse"
    assert sentence.endswith(f"→ not a number {outside}")
    infinite = broken.fillna(math.inf)
    assert said(infinite)[1].endswith(f"→ ∞ {outside}")


def test_costs_are_in_seconds_and_per_cent() -> None:
    pace = np.ones((2, 3, 5))
    pace[1, 1] = 2.0
    found = said(frame(pace=pace * np.linspace(0.99, 1.01, 5)))
    assert found[1].startswith("small · digits · focal: training work 10.0 s → 20.0 s (+100 %")
    assert found[1].endswith(": worse")
    slow = said(frame(pace=1.25))
    assert slow[1].startswith("all sweeps · every row: training work 10.0 s → 12.5 s (+25 %")
    busy = said(frame(pace=1.25, busy=2.0))
    assert busy[-1].startswith("The costs of 6 of 6 trainings are not judged: the machine was busy")


def test_missing_new_and_unjudged_cells_are_listed() -> None:
    whole = frame()
    less = whole[whole["row"] != "focal"]
    gone = (
        "issing tonight, though the baseline has it: small · blobs · focal, small · blobs · "
        "focal + temp, small · digits · focal and small · digits · focal + temp."
    )
    assert said(less) == [f"Incomplete: m{gone}"]
    unfinished = sentences(judge(less, whole, JUDGE), SAME, NO_STEPS, complete=False)
    assert unfinished[1] == f"M{gone}", "there the lead says why it is not complete"
    worse = said(frame(only("blobs", "bo4sc", "temp", "ece", 0.1))[whole["row"] != "focal"])
    assert worse[0].startswith("Regression: 1 value worse")
    assert f"M{gone}" in worse
    assert said(whole, less)[1].startswith("New, with nothing to compare it to: small · blobs")
    few = said(frame(only(*WHERE, "ece", 0.1), seeds=2), frame(seeds=2))
    assert few == ["Incomplete: too few seeds to judge: small · digits · focal + temp."]


def test_long_lists_end() -> None:
    found = said(frame(np.full((*SHAPE, 1), 0.3)))
    assert found[0].startswith("Regression: 36 values worse")
    assert len(found) == 14
    assert found[-1] == "… and 24 more that are worse."


def test_a_drift_says_over_how_many_nights() -> None:
    nights = [
        frame(only(*WHERE, "ece", 0.002 * day)).assign(night=f"2026-11-{day + 1:02d}")
        for day in range(14)
    ]
    drifts = trends(pd.concat(nights), JUDGE)
    found = sentences(judge(frame(), frame(), JUDGE), drifts, NO_STEPS)
    assert found[0] == "Regression: 1 value drifting, of 42 values compared."
    assert found[1].startswith("small · digits · focal + temp: ECE 0.0")
    assert "over 14 nights (+0.026 in all, p < 0.001 after correction over 1 test" in found[1]
    assert found[1].endswith("): drifting")


def test_a_sweep_called_as_its_dataset_is_named_once() -> None:
    tonight, base = (
        night.assign(sweep=night["dataset"]) for night in (frame(only(*WHERE, "ece", 0.1)), frame())
    )
    assert said(tonight, base)[1].startswith("digits · focal + temp: ECE")
