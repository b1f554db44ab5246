"""The recommendation: each sentence must be true of the numbers, in every odd case."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from sweeps.analysis.comparisons import CHOSEN
from sweeps.analysis.noise import Standing
from sweeps.analysis.recommendation import (
    REFERENCES,
    Advice,
    Gain,
    Recommendation,
    RunnerUp,
    SweepFacts,
    recommend,
)
from sweeps.analysis.results import leaderboard
from sweeps.analysis.selection import CHOSEN_BY, select
from sweeps.analysis.verdicts import BASELINE, TOO_FEW, VERDICTS

BETTER = VERDICTS[0]
NAN, INF = math.nan, math.inf


def gain(metric: str, calibrator: str, ours: float, theirs: float, **changes: Any) -> Gain:
    difference = ours - theirs
    found = Gain(
        metric,
        calibrator,
        ours,
        theirs,
        difference,
        difference - 0.02,
        difference + 0.02,
        5,
        BETTER,
    )
    return replace(found, **changes)


USED = Advice(
    "blobs",
    "focal",
    "temperature",
    settings={"lr": 0.012345, "gamma": 2},
    values={"nll": 0.3, "ece": 0.02},
    seeds=5,
    gains=[
        gain("nll", "identity", 0.3, 0.4),
        gain("nll", "temperature", 0.3, 0.31),
        gain("ece", "identity", 0.02, 0.09),
        gain("ece", "temperature", 0.02, 0.03),
    ],
    plain="standard",
    plain_calibrators=["identity", "temperature"],
    relative_time=1.3,
    extra=["gamma"],
    candidates=24,
    tied=3,
    best="focal + beta",
    runner_up=RunnerUp("mixup", "identity", Standing(0.0042, 0.0018, False)),
)


def test_the_answer_says_what_to_use_what_it_gains_how_surely_and_at_what_cost() -> None:
    assert USED.subject == "On blobs, use focal + temperature (lr 0.0123, gamma 2)"
    assert USED.sentence.startswith(f"{USED.subject}: ")
    for part in (
        "mean test NLL over 5 seeds, 0.300",
        f"0.100 [0.080, 0.120] below that of plain cross-entropy ({BETTER})",
        f"0.010 [−0.010, 0.030] below that with temperature ({BETTER})",
        "for 1.3 times the training time and 1 further hyperparameter to search",
    ):
        assert part in USED.sentence


def test_the_details_give_the_error_the_reason_and_the_runner_up() -> None:
    for part in (
        "mean test ECE over 5 seeds, 0.020",
        f"0.070 [0.050, 0.090] below that of plain cross-entropy ({BETTER})",
        f"0.010 [−0.010, 0.030] below that with temperature ({BETTER})",
        "Of 24 candidates, 3 are within noise (one standard error, at most 0.01)",
        "that of focal + beta; none of these is simpler",
        "Runner-up: mixup (validation NLL 0.004 ± 0.002 higher)",
    ):
        assert part in USED.details


@pytest.mark.parametrize(
    ("calibrator", "begin"),
    [
        (
            "temperature",
            "On blobs, nothing beat plain cross-entropy with temperature: use that (lr 0.01). Its "
            "mean test NLL",
        ),
        (
            "identity",
            "On blobs, nothing beat plain cross-entropy as it is: use that, without a calibrator "
            "(lr 0.01). Its mean test NLL",
        ),
        ("beta", "On blobs, use standard + beta (lr 0.01): its mean test NLL"),
    ],
)
def test_the_plain_network_itself(calibrator: str, begin: str) -> None:
    gains = [each for each in USED.gains if each.calibrator != calibrator]
    plain = replace(
        USED, row="standard", calibrator=calibrator, settings={"lr": 0.01}, gains=gains, extra=[]
    )
    assert plain.sentence.startswith(begin)
    free = calibrator == "identity"
    assert plain.sentence.endswith(f"({BETTER})." if free else ", for the same training.")
    if free:  # nothing else of the plain network was named before
        assert "below that of plain cross-entropy with temperature" in plain.sentence


def test_of_several_plain_rows_the_compared_one_is_named() -> None:
    stopped = replace(USED, row="early, stopped", plain_rows=2, extra=[], relative_time=0.42)
    assert "use “early, stopped + temperature”" in stopped.sentence
    assert "that of the plain row standard (" in stopped.sentence
    assert stopped.sentence.endswith(
        "for 0.42 times the training time and no further hyperparameters to search."
    )


def test_nothing_to_compare_with() -> None:
    alone = replace(USED, gains=[], plain=None, plain_calibrators=[], relative_time=NAN)
    assert alone.sentence.endswith(
        "its mean test NLL over 5 seeds is 0.300; the sweep has no row of plain cross-entropy to "
        "compare it with."
    )
    failed = replace(alone, plain="standard")
    assert failed.sentence.endswith("; plain cross-entropy has no result to compare it with.")


def test_without_temperature_the_other_comparison_is_all() -> None:
    found = replace(USED, gains=USED.gains[::2], plain_calibrators=["identity"])
    assert "with temperature" not in found.sentence.partition(":")[2]
    assert found.details.endswith("Plain cross-entropy with temperature was not measured.")


def test_one_seed_claims_nothing() -> None:
    few = {"low": NAN, "high": NAN, "verdict": TOO_FEW}
    gains = [replace(each, **few) for each in USED.gains]
    runner_up = RunnerUp("mixup", "identity", Standing(0.0042, NAN, False))
    found = replace(USED, seeds=1, gains=gains, runner_up=runner_up, best=USED.label, tied=1)
    assert (
        f"its test NLL on its only seed, 0.300, is 0.100 below that of plain cross-entropy "
        f"({TOO_FEW})"
    ) in found.sentence
    assert BETTER not in f"{found.sentence} {found.details}"
    assert "a single seed does not show how much of that is chance" in found.details
    assert "Runner-up: mixup (validation NLL 0.004 higher)." in found.details


def test_an_infinite_nll_has_no_difference() -> None:
    gains = [gain("nll", "identity", 0.3, INF, low=NAN, high=NAN), USED.gains[1]]
    assert f"is 0.300, against ∞ of plain cross-entropy ({BETTER}) and 0.310 with temperature" in (
        replace(USED, gains=gains).sentence
    )
    ours = replace(
        USED, values={"nll": INF, "ece": 0.02}, gains=[gain("nll", "identity", INF, 0.4)]
    )
    assert "its mean test NLL over 5 seeds is ∞, against 0.400 of" in ours.sentence


def test_a_choice_that_test_data_does_not_confirm_says_so() -> None:
    found = replace(USED, gains=[gain("nll", "temperature", 0.3, 0.29, verdict=VERDICTS[1])])
    assert "is 0.010 [−0.010, 0.030] above that of plain cross-entropy with temperature " in (
        found.sentence
    )
    assert "on test data its NLL is not the lowest." in found.details


def test_seeds_that_the_plain_network_lacks_are_told() -> None:
    gains = [gain("nll", "identity", 0.3, 0.31, pairs=4)]
    assert f"({BETTER}; on 4 common seeds)" in replace(USED, gains=gains).sentence


def test_what_would_decide_is_told() -> None:
    open_question = gain(
        "nll", "identity", 0.3, 0.31, verdict="undecided", would_decide="about 6 more seeds"
    )
    assert "(undecided; about 6 more seeds)" in replace(USED, gains=[open_question]).sentence


@pytest.mark.parametrize(
    ("best", "tied", "words"),
    [
        (USED.label, 1, "It has the lowest validation NLL of 24 candidates; no other is within"),
        (USED.label, 2, "1 other is within noise (one standard error, at most 0.01) of it, which"),
        (USED.label, 5, "4 others are within noise"),
        ("standard", 24, "Of 24 candidates, 24 are within noise"),
    ],
)
def test_why_this_one(best: str, tied: int, words: str) -> None:
    assert words in replace(USED, best=best, tied=tied).details


def test_nothing_to_choose_and_nothing_at_all() -> None:
    only = replace(USED, candidates=1, runner_up=None)
    assert only.sentence.startswith(
        "On blobs, focal + temperature (lr 0.0123, gamma 2) is the only candidate. Its mean"
    )
    assert "candidates" not in only.details
    assert Advice("blobs", confirmed=False, remaining=3).sentence == (
        "On blobs, nothing can be recommended yet: no trained network has been confirmed."
    )
    assert Advice("blobs").sentence == (
        "On blobs, nothing can be recommended: no row has a validation NLL on all seeds."
    )
    assert Advice("blobs").details == ""
    assert Recommendation().sentence == "Nothing can be recommended: the sweep has no dataset."


def test_an_unfinished_sweep_says_that_this_may_change() -> None:
    assert replace(USED, remaining=1).details.endswith(
        "The sweep is unfinished (1 trial to come), so this may change."
    )


def test_several_datasets_have_one_answer_over_all() -> None:
    other = replace(USED, dataset="rings")
    assert Recommendation([USED, other]).sentence == ("On both datasets, use focal + temperature.")
    third = replace(USED, dataset="moons", row="standard")
    several = Recommendation([USED, other, third], ("standard + temperature", 3))
    use, _, everywhere = several.sentence.partition(". ")
    assert use == "Use focal + temperature on blobs and rings; standard + temperature on moons"
    assert "cannot tell standard + temperature from the best on all 3 datasets" in everywhere
    assert several.sentences == [several.sentence, *(a.sentence for a in several.datasets)]
    partly = Recommendation([USED, Advice("empty")])
    assert partly.sentence == (
        "Use focal + temperature on blobs; nothing can be recommended on empty."
    )
    nothing = Recommendation([Advice("a"), Advice("b")])
    assert nothing.sentence == "Nothing can be recommended on any of the 2 datasets."


def test_json_has_everything_and_no_number_that_is_none() -> None:
    gains = [gain("nll", "identity", 0.3, INF, low=NAN, high=NAN)]
    found = json.loads(Recommendation([replace(USED, gains=gains)]).to_json())
    (entry,) = found["datasets"]
    assert found["sentence"] == entry["sentence"]
    assert entry["settings"] == {"lr": 0.012345, "gamma": 2}
    assert entry["gains"][0]["theirs"] is None
    assert entry["runner_up"]["standing"]["difference"] == 0.0042


def results(**nll: float) -> pd.DataFrame:
    """Rows as ``standard__temperature``, each with the same validation NLL on both seeds."""
    return pd.DataFrame(
        {"dataset": "d", "row": name.partition("__")[0], "calibrator": name.partition("__")[2]}
        | {"seed": seed, CHOSEN_BY: value, "nll": value + 0.1, "ece": 0.05, "converged": True}
        | {"train_seconds": 2.0 if name.startswith("focal") else 1.0}
        for name, value in nll.items()
        for seed in (1, 2)
    )


def compared(calibrator: str, **changes: Any) -> dict[str, Any]:
    line = {"dataset": "d", "comparison": CHOSEN, "metric": "nll", "mean": 0.4, "low": -0.1}
    line |= {"baseline_calibrator": calibrator, "baseline_mean": 0.5, "difference": -0.1}
    return line | {"high": 0.0, "pairs": 2, "verdict": BETTER} | changes


def test_what_is_recommended_is_what_was_selected() -> None:
    tidy = results(
        standard__identity=0.5, standard__temperature=0.4, focal__identity=0.3, focal__top=NAN
    )
    selection = select(tidy)
    facts = SweepFacts(
        ["d", "absent"],
        "standard",
        1,
        settings={("d", "focal"): {"gamma": 1.0}},
        searched={"standard": ["lr"], "focal": ["lr", "gamma"]},
    )
    lines = [compared(name) for name in REFERENCES] + [compared("beta", verdict=BASELINE)]
    found = recommend(facts, selection, leaderboard(tidy, selection), lines)
    advice, absent = found.datasets
    assert (advice.row, advice.calibrator) == selection.winners["d"] == ("focal", "identity")
    assert [g.calibrator for g in advice.gains] == list(REFERENCES)
    assert (advice.relative_time, advice.extra, advice.candidates) == (2.0, ["gamma"], 3)
    assert advice.values["nll"] == pytest.approx(0.4)
    assert advice.runner_up is not None
    assert advice.runner_up.label == "standard + temperature"
    assert "nothing can be recommended: no trained network" in absent.sentence


def test_the_plain_network_is_not_compared_with_itself() -> None:
    tidy = results(standard__identity=0.5, standard__temperature=0.4)
    selection = select(tidy)
    facts = SweepFacts(["d"], "standard", 1, {}, {"standard": []}, remaining=2)
    lines = [compared("identity"), compared("temperature", verdict=BASELINE)]
    (advice,) = recommend(facts, selection, leaderboard(tidy, selection), lines).datasets
    assert advice.sentence.startswith("On d, nothing beat plain cross-entropy with temperature")
    assert [g.calibrator for g in advice.gains] == ["identity"]
    assert advice.runner_up is None
