"""What a sweep cost and which hyperparameters mattered, on made-up records."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sweeps.analysis import Analysis, analyse
from sweeps.engine.cell import PlannedTrial
from sweeps.engine.plan import Plan
from tests.analysed import SMALL, fresh, line, read, swept
from tests.outcomes import outcome


@pytest.fixture(autouse=True)
def _no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return swept(tmp_path_factory.mktemp("costs"), SMALL)


@pytest.fixture(scope="module")
def analysis(plan: Plan) -> Analysis:
    return analyse(read(plan))


def test_costs_are_those_of_the_records(analysis: Analysis) -> None:
    table = analysis.costs.set_index(["dataset", "row"])
    assert len(table) == 3
    row = table.loc["iris", "standard"]
    assert (row["search_trials"], row["search_seconds"]) == (6, 6.0)
    assert (row["confirm_trials"], row["confirm_seconds"]) == (4, 4.0)
    assert (row["cpu_seconds"], row["gpu_seconds"]) == (20.0, 5.0)
    assert row["wall_seconds"] == pytest.approx(10.0)  # no two trials at a time
    assert (row["seconds_per_training"], row["relative_cost"]) == (1.0, 1.0)
    focal = table.loc["iris", "focal"]
    assert focal["search_trials"] == 6
    assert focal["search_seconds"] in (4.0, 6.0)  # six suggestions of at most three settings
    assert focal["relative_cost"] == 2
    compared = line(analysis, "iris", "focal", "ece", "temperature")
    assert (focal["ece_change"], focal["verdict"]) == (compared["difference"], "better")
    fixed = table.loc["iris", "label_smoothing"]
    assert (fixed["search_trials"], fixed["search_seconds"]) == (0, 0)


def test_a_share_of_a_cohorts_time_is_no_methods_cost(tmp_path: Path) -> None:
    def in_company(trial: PlannedTrial, record: dict[str, Any]) -> dict[str, Any]:
        if trial.number == 0:
            return record
        resources = record.get("resources", {}) | {"company": 4}
        return record | {"seconds": 0.25, "resources": resources}

    sweep = read(swept(tmp_path, SMALL, in_company))
    table = analyse(sweep).costs.set_index(["dataset", "row"])
    assert table.loc["iris", "standard"]["confirm_seconds"] == 1 + 3 * 0.25
    assert table.loc["iris", "standard"]["seconds_per_training"] == 1
    assert table.loc["iris", "focal"]["relative_cost"] == 2
    results = analyse(sweep).results
    alone = results[results["row"] == "standard"].groupby("seed")["train_seconds"].first()
    assert alone.count() == 1


def test_other_work_on_the_machine_makes_no_method_dearer() -> None:
    alone = outcome(seconds=4.0, cpu_seconds=1.0)
    assert alone.seconds_alone == 1.0
    # A GPU's work is not in its process's CPU time; older records have none.
    on_gpu = alone.model_copy(update={"resources": {"gpu": 0.5}})
    older = alone.model_copy(update={"cpu_seconds": 0.0})
    assert (on_gpu.seconds_alone, older.seconds_alone) == (4.0, 4.0)


def test_trials_at_the_same_time_share_the_wall_time(tmp_path: Path) -> None:
    def together(trial: PlannedTrial, record: dict[str, Any]) -> dict[str, Any]:
        return record | {"times": [50.5, 51.0 + 0.5 * trial.number]}

    plan = swept(tmp_path, SMALL, together)
    row = analyse(read(plan)).costs.set_index("row").loc["standard"]
    assert row["wall_seconds"] == pytest.approx(3.5)  # from 50 to 53.5
    assert row["search_seconds"] + row["confirm_seconds"] == 10


def test_importance_finds_the_hyperparameter_that_mattered(analysis: Analysis) -> None:
    table = analysis.importance
    assert set(table["row"]) == {"standard", "focal"}  # nothing was searched in the third
    for _, rows in table.groupby(["dataset", "row"]):
        assert rows["importance"].sum() == pytest.approx(1)
    standard = table[(table["dataset"] == "iris") & (table["row"] == "standard")]
    assert standard.iloc[0]["hyperparameter"] == "lr"
    assert standard.iloc[0]["importance"] > 0.7
    assert (table["trials"] == 6).all()


def test_importance_is_the_same_every_time(tmp_path: Path, analysis: Analysis) -> None:
    again = swept(tmp_path, SMALL)
    pd.testing.assert_frame_equal(analyse(read(again)).importance, analysis.importance)


CONDITIONAL = """\
name: conditional
datasets: [iris]
methods:
  multi_objective:
    lr: {loguniform: [0.001, 0.1]}
    weight_decay: 0
    weighting: [fixed, scheduled]
    ramp: {uniform: [0.1, 0.9], when: {weighting: scheduled}}
search: {trials: TRIALS, OBJECTIVE}
confirm_seeds: 1
calibrators: [temperature]
"""


@pytest.mark.parametrize(
    ("trials", "objective", "hyperparameters"),
    [
        (8, "objective: nll", {"lr", "weighting"}),
        (8, "objective: [nll, ece]", {"lr", "weighting"}),
        (3, "objective: nll", set()),
    ],
)
def test_importance_of_conditional_hyperparameters_and_several_objectives(
    tmp_path: Path, trials: int, objective: str, hyperparameters: set[str]
) -> None:
    text = CONDITIONAL.replace("TRIALS", str(trials)).replace("OBJECTIVE", objective)
    plan = fresh(tmp_path, text)
    cell = plan.cells["iris", "multi_objective"]
    while not cell.study.finished:
        trial = plan.next()
        assert trial is not None
        nll = float(trial.config.hyperparameters["lr"])
        measured = {"nll": nll, "ece": 1 - nll}
        plan.store.file_record(trial.key, outcome(seconds=1.0, validation=measured))
        plan.complete(trial.key)
    assert set(analyse(read(plan)).importance["hyperparameter"]) >= hyperparameters
    assert set(cell.study.importance()) == set(analyse(read(plan)).importance["hyperparameter"])


def test_equally_good_trials_say_nothing_of_their_hyperparameters(tmp_path: Path) -> None:
    def same(trial: PlannedTrial, record: dict[str, Any]) -> dict[str, Any]:
        return record | {"validation": {"nll": 0.5}}

    plan = swept(tmp_path, SMALL, same)
    assert analyse(read(plan)).importance.empty
