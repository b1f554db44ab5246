"""What is compared with what, on results made up for it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from sweeps.analysis import Baseline
from sweeps.analysis.comparisons import by_row, compare

CALIBRATORS = ("identity", "temperature", "beta")
FOUR = (1, 2, 3, 4)
LOOK = 0.05 / 0.04
"""What a first look's p-values are multiplied by."""


def tidy(
    rows: Sequence[str], nll: Mapping[tuple[str, str], Sequence[float]] | None = None
) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    lines = []
    for row in rows:
        for name in CALIBRATORS:
            given = (nll or {}).get((row, name))
            for number, seed in enumerate(FOUR):
                line = {"dataset": "d", "row": row, "calibrator": name, "seed": seed}
                line |= dict(zip(("ece", "nll", "brier", "error"), rng.random(4), strict=True))
                lines.append(line if given is None else line | {"nll": given[number]})
    return pd.DataFrame(lines)


def compared(
    chosen: Mapping[str, str], baseline: Baseline, results: pd.DataFrame | None = None
) -> pd.DataFrame:
    calibrators = {("d", row): name for row, name in chosen.items()}
    results = tidy(list(chosen)) if results is None else results
    return compare(results, calibrators, baseline)


def pairs(table: pd.DataFrame) -> set[tuple[str, ...]]:
    sides = ["comparison", "row", "calibrator", "baseline_calibrator"]
    return set(table[sides].itertuples(index=False, name=None))


def test_both_sides_have_the_same_help() -> None:
    found = compared({"standard": "beta", "focal": "identity"}, Baseline("standard"))
    assert pairs(found) == {
        ("chosen", "standard", "beta", "beta"),
        ("chosen", "focal", "identity", "beta"),
        ("as is", "standard", "identity", "identity"),
        ("as is", "focal", "identity", "identity"),
    }
    own = found["row"] == "standard"
    assert set(found[own]["verdict"]) == {"baseline"}
    assert found[own]["p"].isna().all()
    shown = by_row(found).set_index(["row", "calibrator", "metric"])["comparison"]
    assert shown["focal", "identity", "ece"] == "chosen"


def test_what_comes_to_the_same_is_compared_once() -> None:
    found = compared({"standard": "identity", "focal": "identity"}, Baseline("standard"))
    assert set(found["comparison"]) == {"chosen"}
    assert len(found) == 2 * 4


@pytest.mark.parametrize("named", CALIBRATORS)
def test_a_named_calibrator_is_what_everything_is_compared_with(named: str) -> None:
    baseline = Baseline("standard", named)
    found = compared({"standard": "temperature", "focal": "temperature"}, baseline)
    assert set(found["baseline_calibrator"]) == {named}
    mine = found[found["verdict"] == "baseline"]
    assert set(zip(mine["row"], mine["calibrator"], strict=True)) == {("standard", named)}
    rest = {(m, p) for _, m, p, _ in pairs(found)} - {("standard", named)}
    assert {("focal", "temperature"), ("focal", "identity")} <= rest
    assert len(by_row(found)) == len(found)


def test_as_is_and_chosen_are_families_apart() -> None:
    found = compared(dict.fromkeys(("standard", "a", "b", "c"), "beta"), Baseline("standard"))
    claimed = found[found["metric"].isin(("ece", "nll", "error"))]
    for _, family in claimed.groupby("comparison"):
        assert family["p"].count() == 9
        first = family.loc[family["p"].idxmin()]
        assert first["p_holm"] == pytest.approx(min(1.0, LOOK * 9 * first["p"]))
    brier = found[(found["metric"] == "brier") & (found["comparison"] == "chosen")]
    first = brier.loc[brier["p"].idxmin()]
    assert first["p_holm"] == pytest.approx(min(1.0, LOOK * 3 * first["p"]))


@pytest.mark.parametrize(("infinite", "verdict"), [(1, "undecided"), (4, "worse")])
def test_an_infinite_nll_counts_by_its_seeds(infinite: int, verdict: str) -> None:
    """Worse on every seed shows a difference, and a single accident does not."""
    values = [math.inf] * infinite + [0.5] * (4 - infinite)
    results = tidy(["standard", "focal"], {("focal", "beta"): values})
    # Without a p-value of their own, the other metrics take no part in the correction.
    results[["ece", "error"]] = np.nan
    found = compared({"standard": "beta", "focal": "beta"}, Baseline("standard"), results)
    mine = found[(found["row"] == "focal") & (found["comparison"] == "chosen")]
    line = mine.set_index("metric").loc["nll"]
    table = [[infinite, 4 - infinite], [0, 4]]
    expected = stats.fisher_exact(table, alternative="greater").pvalue
    assert line["p_holm"] == pytest.approx(LOOK * expected)
    assert line["verdict"] == verdict


def test_one_seed_is_too_few_for_an_infinite_nll_too() -> None:
    results = tidy(["standard", "focal"], {("focal", "beta"): [math.inf] * 4})
    results = results[results["seed"] == 1]
    found = compared({"standard": "beta", "focal": "beta"}, Baseline("standard"), results)
    assert set(found["verdict"]) == {"baseline", "too few seeds"}
