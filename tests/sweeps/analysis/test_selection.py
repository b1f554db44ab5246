"""What validation data chose is decided once, and everybody says the same."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pytest

from sweeps.analysis import Analysis
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
    return {f"{choose(told.sweep).label} ★"}


def in_comparison(told: Told) -> set[str]:
    table = compare_sweeps(told.analysis, told.analysis)
    return {label(m, p) for m, p in zip(table["row"], table["calibrator_b"], strict=True)}


SAYING: dict[str, Callable[[Told], set[str]]] = {
    "terminal": in_terminal,
    "leaderboard.csv": in_csv,
    "page": in_page,
    "MLflow": in_mlflow,
    "export": in_export,
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
    if where != "export":
        assert chosen <= shown
        assert {name for name in shown if "+" in name} == chosen - {"label_smoothing"}


def test_the_headline_tells_who_could_not_be_chosen(told: Told) -> None:
    page = told.files["report.html"].decode()
    if told.analysis.selection.cannot_win:
        assert "focal has results on 3 of 4 seeds only and cannot win." in page
    else:
        assert "so never chosen: focal + isotonic." in page


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
