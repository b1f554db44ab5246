"""What validation data chose is decided once, and everybody says the same."""

from __future__ import annotations

import csv
import html
import io
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sweeps.analysis import Analysis
from sweeps.analysis.noise import nll_region, standing
from sweeps.analysis.results import label
from sweeps.analysis.selection import CHOSEN_BY, FEWER_SEEDS, NO_SCORE, best_seed, select
from sweeps.analysis.two_sweeps import compare_sweeps
from sweeps.engine.cell import PlannedTrial
from sweeps.engine.plan import Plan
from sweeps.export.choice import choose
from sweeps.report.terminal import leaderboard_tables
from sweeps.report.write import write_report
from sweeps.spec import ORACLE
from sweeps.sweep import SPEC, Sweep
from tests.analysed import SMALL, evaluation, read, swept
from tests.outcomes import evaluation as evaluated
from tests.sweeps.analysis.choices import cost
from tests.tracked import body, empty_database, runs_of, synced

TEXT = SMALL.replace("isotonic_top_label", "isotonic").replace("trials: 6", "trials: 1")


@dataclass(frozen=True)
class Told:
    """A finished sweep with its report, and where MLflow was told of it."""

    sweep: Sweep
    analysis: Analysis
    files: dict[str, bytes]
    uri: str


def complete(trial: PlannedTrial, record: dict[str, Any]) -> dict[str, Any]:
    return body() | {"config": trial.config.model_dump(mode="json"), "environment": {}} | record


def lose_a_calibrator(plan: Plan) -> None:
    """Focal's isotonic has by far the lowest NLL, on three of four seeds."""
    for number, trial in enumerate(plan.confirmed("iris", "focal")):
        found = evaluation(trial, "isotonic") | {"validation": {"nll": 0.1}}
        failed = {"failed": "ValueError: no"}
        plan.store.write_evaluation(
            trial.key,
            plan.spec.evaluation.tag,
            "isotonic",
            evaluated("isotonic", **failed if number == 1 else found),
        )


def lose_a_seed(trial: PlannedTrial, record: dict[str, Any]) -> dict[str, Any]:
    """Focal, which would win, has no network on one of four seeds."""
    if trial.row == "focal" and trial.config.phase == "confirm" and trial.number == 2:
        return {"status": "failed", "reason": "x", "config": {}, "environment": {}}
    return complete(trial, record)


@pytest.fixture(scope="module", params=["calibrator", "seed"])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Told:
    directory = tmp_path_factory.mktemp(request.param)
    plan = swept(directory, TEXT, complete if request.param == "calibrator" else lose_a_seed)
    if request.param == "calibrator":
        lose_a_calibrator(plan)
    plan.store.write_file(plan.spec.name, SPEC, TEXT.encode())
    files: dict[str, bytes] = {}
    written = write_report(read(plan), plan.store, write=files.__setitem__)
    (directory / "mlflow.db").write_bytes(empty_database())
    uri = f"sqlite:///{directory / 'mlflow.db'}"
    synced(uri, plan, written.summary, written.analysis)
    return Told(Sweep(plan.loaded, plan.store), written.analysis, files, uri)


def in_terminal(told: Told) -> set[str]:
    (table,) = leaderboard_tables(told.analysis, told.sweep.records)
    return {name.partition(" (")[0] for name in table.names}


def in_csv(told: Told) -> set[str]:
    lines = csv.DictReader(io.StringIO(told.files["leaderboard.csv"].decode()))
    return {
        label(line["row"], line["calibrator"]) + (" ★" if line["winner"] == "True" else "")
        for line in lines
        if line["chosen"] == "True"
    }


def in_page(told: Told) -> set[str]:
    page = told.files["report.html"].decode()
    found = set()
    for kind, cells in re.findall(r"<tr([^>]*)>(.*?)</tr>", page, re.DOTALL):
        names = re.search(r"<t[dh][^>]*>(.*?)</t[dh]>", cells, re.DOTALL)
        if names is not None and 'class="' in kind + cells and "minor" not in kind:
            found.add(" ".join(re.sub("<small.*</small>|<[^>]*>", "", names[1]).split()))
    return found


def in_mlflow(told: Told) -> set[str]:
    runs, found = runs_of(told.uri, told.sweep.name), set()
    for (dataset, row), _ in told.sweep.plan.cells.items():
        tags = [
            runs[trial.key].data.tags
            for trial in told.sweep.plan.confirmed(dataset, row)
            if "calsweep.calibrator" in runs[trial.key].data.tags
        ]
        ((chosen, won),) = {(t["calsweep.calibrator"], t["calsweep.winner"]) for t in tags}
        found.add(label(row, chosen) + (" ★" if won == "true" else ""))
    return found


def in_export(told: Told) -> set[str]:
    return {f"{choose(told.sweep.records, told.sweep.analysis).label} ★"}


def in_recommendation(told: Told) -> set[str]:
    """The file, and the first sentence of page and description."""
    found = json.loads(told.files["recommendation.json"])
    page = " ".join(html.unescape(told.files["report.html"].decode()).split())
    first = re.sub("<[^>]*>", "", page.partition('<p class="say">')[2].partition("</p>")[0])
    assert first == found["sentence"]
    described = runs_of(told.uri, told.sweep.name)[told.sweep.name].data.tags["mlflow.note.content"]
    assert first in described.replace("\\", "")
    return {f"{label(each['row'], each['calibrator'])} ★" for each in found["datasets"]}


def in_comparison(told: Told) -> set[str]:
    table = compare_sweeps(told.analysis, told.analysis)
    return {label(m, p) for m, p in zip(table["row"], table["calibrator_b"], strict=True)}


SAYING: dict[str, Callable[[Told], set[str]]] = {
    "terminal": in_terminal,
    "leaderboard.csv": in_csv,
    "page": in_page,
    "MLflow": in_mlflow,
    "export": in_export,
    "recommendation": in_recommendation,
    "compare": in_comparison,
}


@pytest.mark.parametrize("where", SAYING)
def test_everybody_says_the_same(where: str, told: Told) -> None:
    found = told.analysis.selection
    lost_calibrator = ("iris", "focal", "isotonic") in found.ineligible
    winner = "focal + temperature" if lost_calibrator else "label_smoothing"
    chosen = {"standard + temperature", "focal + temperature", "label_smoothing"}
    said = SAYING[where](told)
    stars = {name.removesuffix(" ★") for name in said if name.endswith("★")}
    assert stars == (set() if where == "compare" else {winner})
    named = {name.removesuffix(" ★") for name in said}
    shown = {name for name in named if name.partition(" + ")[0] in told.sweep.spec.methods}
    if where not in ("export", "recommendation"):
        assert chosen <= shown
        assert {name for name in shown if "+" in name} == chosen - {"label_smoothing"}


def test_the_headline_tells_who_could_not_be_chosen(told: Told) -> None:
    page = told.files["report.html"].decode()
    if told.analysis.selection.cannot_win:
        assert "focal has results on only 3 of 4 seeds and cannot win." in page
    else:
        assert "hence never chosen: focal + isotonic." in page


def tidy(*lines: tuple[str, str, dict[int, float]]) -> pd.DataFrame:
    return pd.DataFrame(
        {"dataset": "d", "row": method, "calibrator": calibrator, "seed": seed, CHOSEN_BY: nll}
        for method, calibrator, values in lines
        for seed, nll in values.items()
    )


def test_an_nll_that_is_not_a_number_is_no_result() -> None:
    found = select(
        tidy(
            ("a", "identity", {1: 0.5, 2: 0.5}),
            ("a", "isotonic", {1: 0.1, 2: float("nan")}),
            ("a", "top", {1: float("nan"), 2: float("nan")}),
            (ORACLE, "identity", {1: 0.0, 2: 0.0}),
        )
    )
    assert found.calibrators == {("d", "a"): "identity"}
    assert found.winners == {"d": ("a", "identity")}
    assert found.ineligible == {
        ("d", "a", "isotonic"): FEWER_SEEDS,
        ("d", "a", "top"): NO_SCORE,
    }


def test_of_equals_the_first_is_taken_and_an_infinite_nll_is_last() -> None:
    infinite = {1: float("inf"), 2: 0.0}
    found = select(
        tidy(
            ("a", "isotonic", infinite),
            ("a", "identity", {1: 0.4, 2: 0.6}),
            ("a", "temperature", {1: 0.6, 2: 0.4}),
            ("b", "isotonic", infinite),
        )
    )
    assert found.calibrators == {("d", "a"): "identity", ("d", "b"): "isotonic"}
    assert found.winners == {"d": ("a", "identity")}


def test_a_row_without_any_nll_cannot_win() -> None:
    nan = float("nan")
    found = select(tidy(("a", "identity", {1: nan}), ("b", "identity", {1: 0.5})))
    assert found.cannot_win == {("d", "a"): NO_SCORE}
    assert ("d", "a") not in found.calibrators


def test_the_bare_network_decides_between_seeds_without_an_nll() -> None:
    lines = tidy(
        ("a", "identity", {1: 0.4, 2: 0.3, 3: 0.5}),
        ("a", "top", {1: float("nan"), 2: float("nan"), 3: float("nan")}),
        ("a", "isotonic", {1: 0.2, 2: 0.3, 3: 0.1}),
    )
    assert best_seed(lines, "d", "a", "top") == 2
    assert best_seed(lines, "d", "a", "isotonic") == 3


def noisy(*lines: tuple[str, str, float, float], seeds: int = 4) -> pd.DataFrame:
    """Candidates as (row, calibrator, mean, half the spread over seeds from the first one's)."""
    wave = [(-1) ** seed for seed in range(seeds)]
    return tidy(
        *(
            (row, name, {s: mean + half * wave[s] for s in range(seeds)})
            for row, name, mean, half in lines
        )
    )


def test_a_standing_is_the_corrected_standard_error() -> None:
    ours, best = np.array([0.52, 0.49, 0.55, 0.50]), np.array([0.50, 0.50, 0.51, 0.49])
    difference = ours - best
    found = standing(ours, best, 0.25, 0.01)
    assert found.difference == pytest.approx(difference.mean())
    assert found.error == pytest.approx(math.sqrt(difference.var(ddof=1) * (1 / 4 + 0.25)))
    assert not found.tied  # 0.015 is below the error of 0.0147 … but beyond the region
    assert standing(ours, best, 0.25, 0.02).tied == (found.difference <= found.error)
    alone = standing(ours[:1], best[:1], 0.0, 0.5)
    assert math.isnan(alone.error)
    assert not alone.tied


def test_the_simplest_of_the_tied_is_taken() -> None:
    """Isotonic is best by 0.002, which the seeds' spread of 0.004 does not show."""
    found = select(
        noisy(
            ("a", "isotonic", 0.400, 0.004),
            ("a", "temperature", 0.402, 0.0),
            ("a", "identity", 0.410, 0.0),
        )
    )
    assert found.calibrators["d", "a"] == "temperature"
    assert found.winners["d"] == ("a", "temperature")
    assert found.best["d"] == ("a", "isotonic")
    tied = {name for (_, _, name), each in found.standings.items() if each.tied}
    assert tied == {"isotonic", "temperature"}


def test_noise_excuses_no_more_than_the_region() -> None:
    """A spread of ±1 would tie everything; 0.4105 is too far from 0.4 all the same."""
    rows = [("a", "isotonic", 0.400, 1.0), ("a", "identity", 0.400 + 1.05 * nll_region(), 0.0)]
    assert select(noisy(*rows)).winners["d"] == ("a", "isotonic")
    rows[1] = ("a", "identity", 0.400 + 0.95 * nll_region(), 0.0)
    assert select(noisy(*rows)).winners["d"] == ("a", "identity")


def test_overlapping_validation_parts_widen_the_noise() -> None:
    lines = noisy(("a", "isotonic", 0.400, 0.004), ("a", "identity", 0.4025, 0.0))
    # One standard error of ±0.004 over four seeds is 0.0023; with a ratio of 0.25, 0.0033.
    assert select(lines).winners["d"] == ("a", "isotonic")
    assert select(lines, ratios={"d": 0.25}).winners["d"] == ("a", "identity")


def test_method_goes_before_calibrator_and_time_decides_nothing() -> None:
    lines = noisy(
        ("bilevel", "identity", 0.400, 0.004),
        ("plain", "isotonic", 0.401, 0.0),
        ("plain", "temperature", 0.402, 0.0),
        ("slow", "temperature", 0.401, 0.0),
    )
    lines["train_seconds"] = lines["row"].map({"bilevel": 1.0, "plain": 2.0, "slow": 9.0})
    complexities = {"bilevel": 4, "plain": 0, "slow": 0}
    # The lower mean decides between what is equally simple.
    assert select(lines, complexities).winners["d"] == ("slow", "temperature")


def test_the_winners_row_has_the_calibrator_it_won_with() -> None:
    """b's bare network is within noise of b's best, but not of the best of all."""
    lines = noisy(
        ("a", "identity", 0.398, 0.006),
        ("b", "temperature", 0.400, 0.002),
        ("b", "identity", 0.4035, 0.006),
    )
    found = select(lines, {"a": 1, "b": 0})
    assert found.winners["d"] == ("b", "temperature")
    assert found.calibrators["d", "b"] == "temperature"
    assert found.runners_up["d"][0] == ("a", "identity")


def test_a_tie_of_everything_is_the_simplest_and_one_seed_ties_only_equals() -> None:
    rows = [(row, name) for row in ("a", "b") for name in ("isotonic", "temperature", "identity")]
    same = tidy(*((row, name, {1: 0.5, 2: 0.6}) for row, name in rows))
    assert select(same, {"a": 1, "b": 0}).winners["d"] == ("b", "identity")
    once = tidy(("a", "isotonic", {1: 0.5}), ("a", "identity", {1: 0.5000001}))
    assert select(once).winners["d"] == ("a", "isotonic")


@pytest.mark.parametrize(("step", "seed"), [(0.0, 0), (0.002, 1), (0.02, 2)])
def test_the_rule_costs_less_than_the_region_on_new_data(step: float, seed: int) -> None:
    """``python -m tests.benchmarks.bench_choice`` is the same with networks and calibrators.

    Five rows, each better than the simpler one before it by ``step``; seeds with deviation
    0.02 shared by all rows and 0.01 of their own, in validation and test data alike.
    """
    rng = np.random.default_rng(seed)
    seeds = range(40)
    shared = 0.5 + 0.02 * rng.normal(size=(2, len(seeds)))
    lines = []
    for place, row in enumerate("abcde"):
        values = shared - step * place + 0.01 * rng.normal(size=shared.shape)
        for number in seeds:
            line = {"dataset": "d", "row": row, "calibrator": "identity", "seed": number}
            lines.append(line | {CHOSEN_BY: values[0, number], "nll": values[1, number]})
    complexities = {row: place for place, row in enumerate("abcde")}
    found = cost(pd.DataFrame(lines), complexities, 0.0, rng, sweeps=60)
    assert found.upper <= nll_region()
    assert found.changed > 0.2 or step == 0.02
