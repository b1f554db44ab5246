"""The sentences: each must be true of the numbers, in every case."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from sweeps.analysis import Analysis
from sweeps.analysis.statistics import Ranks, ranks
from sweeps.report.chance import like_perfect
from sweeps.report.headline import Headline, across, headline
from sweeps.report.wording import listed, p_value, seconds
from tests.sweeps.report.analyses import analysis, compared, oracle, row


def said(
    found: Analysis, methods: tuple[str, ...] = (), own_draws: bool = True, seeds: int = 5
) -> Headline:
    names = methods or tuple(dict.fromkeys(found.leaderboard.get("row", [])))
    trained = [name for name in names if not name.startswith("oracle")]
    about = {"methods": trained, "seeds": seeds, "test_rows": 1000, "own_draws": own_draws}
    return headline("blobs", found, **about)


def test_a_chosen_row_that_is_better_and_as_good_as_perfect() -> None:
    found = analysis(
        [
            row("focal", "temperature", winner=True),
            *(row("standard", "beta", chosen=True), row("standard"), row("bo4sc"), oracle()),
        ],
        compared("focal", "temperature", ece=("better", 0.004), nll=("better", 0.0002))
        + compared("bo4sc")
        + compared("bo4sc", ece=("worse", 0.004), comparison="as is"),
    )
    facts = (
        *("blobs", "focal + temperature", "validation data", "ECE 0.024 [0.019, 0.031]"),
        *(
            "0.021 by chance",
            "cannot be distinguished from perfectly calibrated",
            "5 × 1,000 test points",
        ),
        *("standard + beta", "better in ECE (p = 0.004) and NLL (p < 0.001)"),
        "undecided in accuracy",
    )
    lead = said(found).lead
    places = [lead.find(fact) for fact in facts]
    assert min(places) >= 0, lead
    assert places == sorted(places)
    assert said(found).others == ("The others against standard + beta, in ECE: bo4sc: undecided.")


def test_the_winner_is_the_baseline_itself() -> None:
    lines = compared("standard", ece=("baseline", math.nan), nll=("baseline", math.nan))
    found = analysis(
        [row("standard", winner=True), row("focal")],
        lines + compared("focal", ece=("worse", 0.01), error=("worse", 0.02)),
    )
    assert said(found).lead.endswith("test points. It is the baseline itself.")
    assert said(found).others == (
        "The others against standard, in ECE: focal: worse. In error: focal: worse."
    )


def test_a_winner_that_costs_accuracy_or_calibration_says_so() -> None:
    lines = compared("focal", ece=("better", 0.04), nll=("worse", 0.03), error=("worse", 0.01))
    found = analysis([row("focal", winner=True), row("standard")], lines)
    assert said(found).lead.endswith(
        "Compared with standard: better in ECE (p = 0.040), worse in NLL (p = 0.030), less "
        "accurate (error 0.131 against 0.121, p = 0.010)."
    )


def test_equal_predictions_have_the_same_accuracy() -> None:
    lines = compared("focal", "temperature")
    for line in lines:
        line |= {"difference": 0.0, "low": 0.0, "high": 0.0}
    found = analysis([row("focal", "temperature", winner=True), row("standard")], lines)
    assert said(found).lead.endswith(
        "undecided in ECE (p = 0.50) and NLL (p = 0.50), the same accuracy."
    )


def test_an_ece_far_above_its_floor_is_not_called_perfect() -> None:
    found = analysis([row("standard", winner=True, ece=0.09), row("focal")])
    assert "it is not perfectly calibrated, on 5 × 1,000 test points" in said(found).lead
    assert "cannot be told" not in said(found).lead


def test_a_test_set_that_all_seeds_share_counts_once() -> None:
    found = analysis([row("standard", winner=True, ece=0.03), row("focal")])
    assert "it is not perfectly calibrated, on 5 × 1,000 test points" in said(found).lead
    shared = said(found, own_draws=False).lead
    assert "cannot be distinguished from perfectly calibrated on 1,000 test points" in shared


def test_one_seed_tests_nothing() -> None:
    few = ("too few seeds", math.nan)
    lines = compared("focal", pairs=1, ece=few, nll=few, error=few)
    found = analysis([row("focal", winner=True, seeds=1), row("standard", seeds=1)], lines)
    assert said(found, seeds=1).lead.endswith(
        "on 1,000 test points. With 1 seed in common, no difference from standard can be tested."
    )
    assert said(found, seeds=1).others == ""


def test_one_row_is_no_choice() -> None:
    found = analysis([row("standard", winner=True)])
    assert said(found).lead.startswith("On blobs, standard has ECE 0.024")


def test_without_an_interval_or_a_floor_none_is_named() -> None:
    nothing = (math.nan, math.nan)
    found = analysis([row("standard", winner=True, ci=nothing, floor=math.nan), row("focal")])
    assert said(found).lead.startswith(
        "On blobs, standard, chosen on validation data, has ECE 0.024. "
    )


def test_no_result_no_winner_and_partial_failures() -> None:
    assert "no trained network has been confirmed" in said(analysis([oracle()])).lead
    assert "no trained network has been confirmed" in said(analysis([])).lead
    found = analysis([row("standard"), row("focal", seeds=3)])
    told = said(found, ("standard", "focal", "bo4sc"))
    assert told.lead == "On blobs, no row was chosen: none has a validation NLL on all seeds."
    assert told.others == (
        "No result for bo4sc. focal has results on only 3 of 5 seeds and cannot win."
    )


def test_a_winner_without_a_comparison_says_so() -> None:
    found = analysis([row("focal", winner=True), row("standard")], compared("standard"))
    assert said(found).lead.endswith("It cannot be compared with standard.")


def test_an_unmeasured_score_is_not_spoken_of() -> None:
    lines = compared("focal", nll=("not measured", math.nan), ece=("better", 0.01))
    found = analysis([row("focal", winner=True), row("standard")], lines)
    assert "better in ECE (p = 0.010), undecided in accuracy" in said(found).lead
    assert "NLL" not in said(found).lead


def test_an_infinite_score_is_spoken_of() -> None:
    lines = compared("focal", nll=("worse", math.nan), ece=("better", 0.01))
    for line in lines:
        if line["metric"] == "nll":
            line |= {"mean": math.inf, "difference": math.inf, "low": math.nan, "high": math.nan}
    found = analysis([row("focal", winner=True, nll=math.inf), row("standard")], lines)
    assert "better in ECE (p = 0.010), worse in NLL (∞ against 0.121)" in said(found).lead


def test_seeds_that_failed_for_all_are_told() -> None:
    found = analysis([row("standard", winner=True, seeds=4), row("focal", seeds=3)])
    assert said(found).others.endswith(
        "standard has results on only 4 of 5 seeds. "
        "focal has results on only 3 of 5 seeds and cannot win."
    )


def test_other_datasets_are_not_mixed_in() -> None:
    found = analysis(
        [row("standard", winner=True), row("focal", dataset="other", winner=True, ece=0.5)],
        compared("focal", dataset="other", ece=("worse", 0.001)),
    )
    assert "focal" not in str(said(found, ("standard",)))


def test_names_with_commas_and_many_names_stay_readable() -> None:
    assert listed(["a", "b, c"]) == "a and “b, c”"
    assert listed([str(n) for n in range(20)]) == "0, 1, 2, 3, 4, 5 and 14 others"
    assert listed(list("abcdefg")) == "a, b, c, d, e, f and g"


def test_ranks_in_a_sentence() -> None:
    scores = pd.DataFrame({name: [float(n)] * 12 for n, name in enumerate("abcd")})
    clear = ranks(scores)
    assert clear is not None
    words = across(analysis([], ranks={"nll": clear}))
    assert "Over 12 datasets, a has the best mean rank in NLL: 1.00 among 4 rows" in words
    assert "differs significantly from c and d (Nemenyi)" in words
    tied = Ranks(clear.average, 12, 0.4, clear.critical_difference, clear.groups)
    assert across(analysis([], ranks={"nll": tied})).endswith(
        "but the ranks differ no more than chance explains (Friedman p = 0.40)."
    )
    assert across(analysis([])) == ""


@pytest.mark.parametrize(
    ("p", "text"),
    [(0.0004, "p < 0.001"), (0.0041, "p = 0.004"), (0.32, "p = 0.32"), (1.0, "p = 1")],
)
def test_p_values(p: float, text: str) -> None:
    assert p_value(p) == text
    assert p_value(math.nan) == ""


def test_durations() -> None:
    assert [seconds(s) for s in (0.451, 12.34, 119.0, 486, 11_520)] == [
        *("0.45 s", "12.3 s", "119.0 s", "8.1 min", "3.2 h")
    ]


def test_chance_shrinks_with_independent_seeds() -> None:
    seeds = pd.DataFrame({"ece": [0.028] * 9, "floor": [0.02] * 9, "floor_q95": [0.03] * 9})
    assert like_perfect(seeds, own_draws=False)
    assert not like_perfect(seeds, own_draws=True)  # the mean of nine: 0.02 + 0.01 / 3
    assert like_perfect(seeds.assign(ece=0.023), own_draws=True)
    assert not like_perfect(seeds.head(0), own_draws=True)
