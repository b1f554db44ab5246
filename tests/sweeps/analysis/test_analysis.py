"""The analysis of a sweep: on records made up so that the answer is known, and on real ones."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from calibration import metrics
from calibration.metrics import METRICS, Shown
from sweeps.analysis import (
    VERDICTS,
    Analysis,
    analyse,
    find_baseline,
)
from sweeps.analysis.results import leaderboard
from sweeps.analysis.row_evidence import About
from sweeps.analysis.selection import CHOSEN_BY, select
from sweeps.analysis.statistics import crossed_means
from sweeps.engine.cell import PlannedTrial
from sweeps.engine.plan import Plan
from sweeps.engine.trial import TrialRun
from sweeps.errors import UserError
from sweeps.spec import ORACLE
from tests.analysed import SMALL, evaluation, fresh, line, read, scores, seeds_of, swept
from tests.outcomes import evaluation as evaluated


@pytest.fixture(autouse=True)
def _no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return swept(tmp_path_factory.mktemp("analysed"))


@pytest.fixture(scope="module")
def analysis(plan: Plan) -> Analysis:
    return analyse(read(plan))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return swept(tmp_path_factory.mktemp("small"), SMALL)


def test_maps_are_chosen_on_validation_data(analysis: Analysis) -> None:
    """Label smoothing's temperature has the better test ECE and is not chosen for it."""
    for dataset in ("blobs-1.7", "iris", "wine"):
        assert analysis.selection.calibrators[dataset, "standard"] == "temperature"
        assert analysis.selection.calibrators[dataset, "focal"] == "temperature"
        assert analysis.selection.calibrators[dataset, "label_smoothing"] == "identity"
    assert all(method != ORACLE for _, method in analysis.selection.calibrators)


def test_a_map_that_failed_on_a_seed_is_not_chosen(tmp_path: Path) -> None:
    plan = swept(tmp_path, SMALL)
    trial = plan.confirmed("iris", "focal")[2]
    plan.store.write_evaluation(
        trial.key, plan.spec.evaluation.tag, "temperature", evaluated("temperature", failed="x")
    )
    found = analyse(read(plan))
    assert found.selection.calibrators["iris", "focal"] == "identity"
    assert line(found, "iris", "focal", "ece", "identity")["pairs"] == 4


def test_verdicts_are_what_was_planted(analysis: Analysis) -> None:
    table = analysis.comparisons
    assert set(table["verdict"]) <= set(VERDICTS)
    assert analysis.baseline == ("standard", None)
    for dataset in ("blobs-1.7", "iris", "wine"):
        expected = {
            ("chosen", "standard", "temperature", "temperature"): "baseline",
            ("chosen", "focal", "temperature", "temperature"): "better",
            ("chosen", "label_smoothing", "identity", "temperature"): "worse",
            ("as is", "standard", "identity", "identity"): "baseline",
            ("as is", "focal", "identity", "identity"): "better",
            ("as is", "label_smoothing", "identity", "identity"): "worse",
        }
        rows = table[(table["dataset"] == dataset) & (table["metric"] == "ece")]
        sides = ["comparison", "row", "calibrator", "baseline_calibrator"]
        assert rows.set_index(sides)["verdict"].to_dict() == expected
    assert len(table) == 3 * len(METRICS.names(Shown.LEADERBOARD)) * 6


@pytest.mark.parametrize(("dataset", "about"), [("blobs-1.7", "new_data"), ("iris", "test_set")])
@pytest.mark.parametrize("family", [("ece", "nll", "error"), ("brier",)])
def test_comparisons_over_seeds_are_paired_tests_with_holms_correction(
    plan: Plan, dataset: str, about: About, family: tuple[str, ...]
) -> None:
    """All rows in the metrics of the headline are one family; what it does not name is another.

    Where every seed draws its own test rows, and where these very rows are meant, seeds are all
    the chance there is.
    """
    analysis = analyse(read(plan), about=about)
    baseline = seeds_of(analysis, dataset, "standard", "temperature")
    p_values: list[tuple[float, float, float]] = []
    lines = []
    for metric in family:
        for method, calibrator in (("focal", "temperature"), ("label_smoothing", "identity")):
            ours = seeds_of(analysis, dataset, method, calibrator)
            found = line(analysis, dataset, method, metric, calibrator)
            if metric == "nll":  # planted without any spread
                assert math.isnan(found["p"])
                continue
            difference, region = ours[metric] - baseline[metric], METRICS[metric].region
            assert region is not None
            below = stats.ttest_1samp(difference, -region, alternative="less").pvalue
            above = stats.ttest_1samp(difference, region, alternative="greater").pvalue
            p_values.append((below, max(1 - below, 1 - above), above))
            lines.append(found)
            assert found["region"] == region
            assert found["p"] == pytest.approx(min(p_values[-1]))
            interval = stats.ttest_rel(ours[metric], baseline[metric]).confidence_interval()
            assert (found["low"], found["high"]) == pytest.approx((interval.low, interval.high))
            assert found["mean"] == pytest.approx(ours[metric].mean())
            assert found["baseline_mean"] == pytest.approx(baseline[metric].mean())
            assert found["difference"] == pytest.approx(found["mean"] - found["baseline_mean"])
            assert found["low"] < found["difference"] < found["high"]
            assert found["pairs"] == 4
    claims = [multipletests(p, method="holm")[1] for p in zip(*p_values, strict=True)]
    expected = [min(1.0, 0.05 / 0.04 * min(p)) for p in zip(*claims, strict=True)]
    assert [found["p_holm"] for found in lines] == pytest.approx(expected)


def test_new_data_has_the_chance_of_rows_too(plan: Plan, analysis: Analysis) -> None:
    """On a fixed test part the seeds are crossed with its rows, which only widens intervals."""
    found = line(analysis, "iris", "focal", "ece", "temperature")
    narrow = line(analyse(read(plan), about="test_set"), "iris", "focal", "ece", "temperature")
    assert found["difference"] == pytest.approx(narrow["difference"])
    assert found["high"] - found["low"] > 1.1 * (narrow["high"] - narrow["low"])
    tests = [seeds_of(analysis, "iris", row, "temperature") for row in ("focal", "standard")]
    wrong = [np.arange(1000) < np.round(1000 * test[["error"]].to_numpy()) for test in tests]
    expected = crossed_means(wrong[0].astype(float) - wrong[1], quantum=1.0)
    found = line(analysis, "iris", "focal", "error", "temperature")
    assert (found["low"], found["high"]) == pytest.approx(expected.interval())


def test_an_evaluation_without_row_scores_says_so(tmp_path: Path) -> None:
    """It is never compared by another test than it should be."""
    plan = swept(tmp_path, SMALL)
    for path in (tmp_path / "runs" / "records").rglob("row-scores/*/temperature.bin"):
        path.unlink()
    found = line(analyse(read(plan)), "iris", "focal", "ece", "temperature")
    assert found["verdict"] == "too little recorded"
    assert found["would_decide"].startswith("run the sweep again")
    assert math.isnan(found["p"])
    seeds_only = analyse(read(plan), about="test_set")
    assert line(seeds_only, "iris", "focal", "ece", "temperature")["verdict"] == "better"


def test_other_test_rows_are_not_paired(tmp_path: Path) -> None:
    plan = swept(tmp_path, SMALL)
    trial, tag = plan.confirmed("iris", "focal")[2], plan.spec.evaluation.tag
    measured = evaluated("temperature", **evaluation(trial, "temperature"))
    others = scores(measured.test)._replace(labels="others")
    plan.store.write_evaluation(trial.key, tag, "temperature", measured, others)
    found = line(analyse(read(plan)), "iris", "focal", "ece", "temperature")
    assert found["verdict"] == "too little recorded"


def test_the_spec_may_widen_a_region(tmp_path: Path) -> None:
    plan = swept(tmp_path, SMALL + "equivalence: {ece: 0.2}\n")
    found = line(analyse(read(plan)), "iris", "focal", "ece", "temperature")
    assert (found["region"], found["verdict"]) == (0.2, "equivalent")


@pytest.mark.parametrize("dataset", ["blobs-1.7", "iris"])
def test_the_leaderboard_has_intervals_over_seeds_and_rows(
    analysis: Analysis, dataset: str
) -> None:
    table = analysis.leaderboard.set_index(["dataset", "row", "calibrator"])
    row = table.loc[dataset, "focal", "temperature"]
    values = seeds_of(analysis, dataset, "focal", "temperature")["ece"]
    of_seeds = values.var(ddof=1) / 4
    # The planted bootstrap interval of each seed is 0.05 wide.
    of_rows = (0.05 / (2 * stats.norm.ppf(0.975))) ** 2 if dataset == "iris" else 0.0
    freedom = 3 * ((of_seeds + of_rows) / of_seeds) ** 2
    half = stats.t.ppf(0.975, freedom) * math.sqrt(of_seeds + of_rows)
    assert row["ece_ci_high"] == pytest.approx(values.mean() + half)
    assert row["ece_ci_low"] == pytest.approx(values.mean() - half)
    top_label = table.loc[dataset, "focal", "isotonic_top_label"]
    assert math.isnan(top_label["nll_ci_low"])
    assert "winner" in table
    assert ("blobs-1.7", ORACLE, "identity") in table.index


def test_intervals_stay_within_what_a_metric_can_be(tmp_path: Path) -> None:
    plan = swept(tmp_path, SMALL)
    for trial in plan.confirmed("iris", "focal")[:2]:
        extreme = evaluation(trial, "temperature")
        extreme["test"]["ece"] = 0.9
        plan.store.write_evaluation(
            trial.key, plan.spec.evaluation.tag, "temperature", evaluated("temperature", **extreme)
        )
    table = analyse(read(plan)).leaderboard.set_index(["row", "calibrator"])
    row = table.loc["focal", "temperature"]
    assert (row["ece_ci_low"], row["ece_ci_high"]) == (0, 1)
    assert table.loc["standard", "identity"]["ece_ci_low"] > 0


def test_baselines_are_found_by_name(plan: Plan) -> None:
    spec = plan.spec
    assert find_baseline(spec).label == "standard"
    assert find_baseline(spec, "focal").label == "focal"
    assert find_baseline(spec, "focal + temperature").calibrator == "temperature"
    assert find_baseline(spec, "focal+temperature").label == "focal + temperature"
    assert find_baseline(spec, "focal + identity") == ("focal", "identity")
    assert find_baseline(spec, "focal + identity").label == "focal as is"
    with pytest.raises(UserError, match=r"'best'; write a trained row, .*: standard, focal"):
        find_baseline(spec, "best")
    with pytest.raises(UserError, match="calibrators are: identity, temperature"):
        find_baseline(spec, "focal + beta")
    rows = {"a": spec.methods["focal"], "b": spec.methods["standard"]}
    assert find_baseline(spec.model_copy(update={"methods": rows})).row == "b"
    del rows["b"]
    assert find_baseline(spec.model_copy(update={"methods": rows})).row == "a"


def test_another_baseline_turns_the_verdict_round(small: Plan) -> None:
    found = analyse(read(small), "focal + temperature")
    assert found.baseline.label == "focal + temperature"
    assert line(found, "iris", "standard", "ece", "temperature")["verdict"] == "worse"
    assert line(found, "iris", "focal", "ece", "temperature")["verdict"] == "baseline"
    assert (
        found.costs.set_index(["dataset", "row"]).loc[("iris", "standard"), "relative_cost"] == 0.5
    )


def test_what_a_top_label_map_cannot_have_is_not_measured(small: Plan) -> None:
    found = analyse(read(small), "standard + isotonic_top_label")
    assert line(found, "iris", "focal", "nll", "temperature")["verdict"] == "not measured"
    assert line(found, "iris", "focal", "ece", "temperature")["verdict"] == "better"


def test_only_rows_with_every_seed_of_the_trained_ones_can_win() -> None:
    """The oracle, which never fails, does not count."""
    lines = [
        {"dataset": "d", "row": method, "calibrator": "identity", "seed": seed, CHOSEN_BY: nll}
        for method, nll, seeds in (
            ("a", 0.1, (1, 2)),
            ("b", 0.2, (1, 2, 3)),
            (ORACLE, math.nan, (1, 2, 3, 4)),
        )
        for seed in seeds
    ]
    tidy = pd.DataFrame(lines).assign(converged=True)
    found = select(tidy)
    assert found.winners == {"d": ("b", "identity")}
    assert found.calibrators == {("d", "a"): "identity", ("d", "b"): "identity"}
    assert set(found.cannot_win) == {("d", "a")}
    table = leaderboard(tidy, found)
    assert table.loc[table["winner"], "row"].tolist() == ["b"]
    assert table.loc[table["chosen"], "row"].tolist() == ["a", "b"]
    half = pd.DataFrame([line for line in lines if line["seed"] != 3])
    assert select(half).winners == {"d": ("a", "identity")}


def test_failed_seeds_leave_fewer_pairs(tmp_path: Path) -> None:
    def fail(trial: PlannedTrial, record: dict[str, Any]) -> dict[str, Any]:
        lost = trial.row == "focal" and trial.config.phase == "confirm" and trial.number < 3
        return {"status": "failed", "reason": "x", "config": {}} if lost else record

    def fail_one(trial: PlannedTrial, record: dict[str, Any]) -> dict[str, Any]:
        return fail(trial, record) if trial.number == 1 else record

    text = SMALL
    (tmp_path / "one").mkdir()
    plan = swept(tmp_path / "one", text, fail_one)
    found = line(analyse(read(plan)), "iris", "focal", "ece", "temperature")
    assert (found["pairs"], found["verdict"]) == (3, "better")
    plan = swept(tmp_path, text, fail)
    few = analyse(read(plan))
    found = line(few, "iris", "focal", "ece", "temperature")
    assert (found["pairs"], found["verdict"]) == (1, "too few seeds")
    cost = few.costs.set_index("row").loc["focal"]
    assert (cost["failed"], cost["confirm_trials"], cost["confirm_seconds"]) == (3, 4, 2.0)


def test_a_baseline_that_failed_leaves_nothing_to_compare(tmp_path: Path) -> None:
    def fail(trial: PlannedTrial, record: dict[str, Any]) -> dict[str, Any]:
        lost = trial.cell == ("iris", "standard")
        return {"status": "failed", "reason": "x", "config": {}} if lost else record

    plan = swept(tmp_path, change=fail)
    found = analyse(read(plan))
    rows = found.comparisons[found.comparisons["dataset"] == "iris"]
    assert set(rows["verdict"]) == {"too few seeds"}
    assert math.isnan(found.hypervolumes["iris"])
    assert not math.isnan(found.hypervolumes["wine"])
    assert found.ranks == {}  # two methods are left that have results everywhere


def test_one_seed_has_the_bootstrap_interval_and_no_verdict(tmp_path: Path) -> None:
    text = SMALL.replace("confirm_seeds: 4", "confirm_seeds: 1")
    plan = swept(tmp_path, text)
    found = analyse(read(plan))
    row = found.leaderboard.iloc[0]
    assert row["ece_ci_low"] == pytest.approx(row["ece"] - 0.02)
    assert row["ece_ci_high"] == pytest.approx(row["ece"] + 0.03)
    assert math.isnan(row["brier_ci_low"])
    assert set(found.comparisons["verdict"]) == {"baseline", "too few seeds"}


def test_one_method_alone(tmp_path: Path) -> None:
    others = ("  standard:", "  label_smoothing:")
    text = "".join(row for row in SMALL.splitlines(True) if not row.startswith(others))
    plan = swept(tmp_path, text)
    found = analyse(read(plan))
    assert found.baseline.label == "focal"
    assert found.ranks == {}
    assert set(found.comparisons["calibrator"]) == {"identity", "temperature"}
    assert (found.costs["relative_cost"] == 1).all()


def test_nothing_confirmed_leaves_frames_without_rows(tmp_path: Path, analysis: Analysis) -> None:
    found = analyse(read(fresh(tmp_path)))
    for name in ("results", "leaderboard", "comparisons", "fronts", "importance"):
        frame, full = getattr(found, name), getattr(analysis, name)
        assert frame.empty
        wanted = {"dataset", "row", "ece", "seeds", "winner", "ece_sd", "ece_ci_low", "verdict"}
        assert wanted & set(full) <= set(frame), name
    assert list(found.costs) == list(analysis.costs)
    assert (found.costs["search_trials"] == 0).all()
    assert (found.selection.calibrators, found.ranks, found.hypervolumes) == ({}, {}, {})


def test_methods_are_ranked_over_datasets(analysis: Analysis) -> None:
    assert set(analysis.ranks) == set(METRICS.names(Shown.LEADERBOARD))
    found = analysis.ranks["ece"]
    assert found.average.to_dict() == {"focal": 1, "standard": 2, "label_smoothing": 3}
    assert found.datasets == 3
    assert found.friedman_p == pytest.approx(stats.chi2.sf(6, 2))


def test_fronts_and_the_area_they_cover(analysis: Analysis) -> None:
    table = analysis.fronts
    assert ORACLE not in set(table["row"])
    assert len(table) == 3 * 3 * 3
    for dataset, rows in table.groupby("dataset"):
        assert rows.loc[rows["ece"].idxmin(), "on_front"]
        assert rows.loc[rows["error"].idxmin(), "on_front"]
        assert (rows["on_cost_front"] | ~rows["on_front"]).all()
        own = rows[(rows["row"] == "standard") & (rows["calibrator"] == "temperature")].iloc[0]
        front = rows[rows["on_front"]].sort_values("error")
        heights = [2.0, *(front["ece"] / own["ece"]).clip(upper=2)]
        widths = 2 - front["error"] / own["error"]
        area = sum(w * max(0, a - b) for w, a, b in zip(widths, heights, heights[1:], strict=False))
        assert analysis.hypervolumes[str(dataset)] == pytest.approx(area)
        assert area > 1


REAL = """\
name: real
datasets: [blobs-1.7]
model: {name: mlp, widths: [8]}
methods:
  standard: {lr: {loguniform: [0.001, 0.1]}, weight_decay: 0}
  focal: {lr: 0.05, weight_decay: 0, gamma: 2.0}
training: {epochs: 8, batch_size: full, evaluate_every: 4}
search: {trials: 4}
confirm_seeds: 3
calibrators: [temperature]
"""


def test_a_real_sweep_is_analysed(tmp_path: Path) -> None:
    plan = fresh(tmp_path, REAL)
    while (trial := plan.next()) is not None:
        run = TrialRun(
            trial.config,
            plan.store,
            calibrators=plan.spec.calibrator_names,
            evaluation=plan.spec.evaluation,
        )
        while not run.advance(60.0):
            pass
        plan.complete(trial.key)
    found = analyse(read(plan))
    differences = []
    for ours, baseline in zip(
        plan.confirmed("blobs-1.7", "focal"), plan.confirmed("blobs-1.7", "standard"), strict=True
    ):
        errors = []
        for trial in (ours, baseline):
            arrays = plan.store.predictions(plan.store.record(trial.key))
            probabilities = arrays["test_logits"].double().softmax(-1)
            errors.append(float(metrics.error(probabilities, arrays["test_labels"])))
        differences.append(errors[0] - errors[1])
    calibrator = found.selection.calibrators["blobs-1.7", "focal"]
    assert calibrator in ("identity", "temperature")  # neither changes the error
    compared = line(found, "blobs-1.7", "focal", "error", calibrator)
    assert compared["difference"] == pytest.approx(np.mean(differences))
    interval = stats.ttest_1samp(differences, 0).confidence_interval()
    assert (compared["low"], compared["high"]) == pytest.approx((interval.low, interval.high))
    assert (found.costs["search_seconds"] + found.costs["confirm_seconds"] > 0).all()
    spent = found.costs["search_seconds"] + found.costs["confirm_seconds"]
    assert (found.costs["wall_seconds"] >= 0.9 * spent).all()  # one trial at a time
    assert found.importance["trials"].tolist() == [4]
