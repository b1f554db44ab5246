"""The plan with everything that can happen to a trial: stopped, failed, dead, tried again."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from sweeps.analysis.results import pareto
from sweeps.engine.cell import PlannedTrial
from sweeps.engine.plan import Options, Plan
from sweeps.ray_backend.assignment import Terms
from sweeps.ray_backend.searcher import PlanScheduler, PlanSearcher
from sweeps.search.stopping import rung_values
from sweeps.spec import load_spec
from sweeps.store import Store, StoreError
from sweeps.sweep import records_of
from tests.outcomes import evaluation, outcome

SPEC = """\
name: engine
datasets: [blobs-1.7]
model: {name: mlp, widths: [4]}
methods: {focal: {lr: {loguniform: [0.001, 1]}, weight_decay: 0, gamma: {uniform: [0, 5]}}}
training: {epochs: 27, batch_size: full}
confirm_seeds: 1
calibrators: []
"""


def fresh(place: Path, more: str, options: Options | None = None) -> Plan:
    place.mkdir(exist_ok=True)
    (place / "engine.yaml").write_text(SPEC + more)
    plan = Plan(load_spec(place / "engine.yaml"), Store(place / "runs"), options)
    plan.replay()
    return plan


def loss(trial: PlannedTrial, epoch: int) -> float:
    hyperparameters = trial.config.hyperparameters
    return (
        (math.log10(hyperparameters["lr"]) + 2) ** 2
        + (hyperparameters["gamma"] - 3) ** 2
        + 1 / epoch
    )


def body(trial: PlannedTrial, epochs: int) -> dict[str, Any]:
    """What a trial's record would say after so many epochs."""
    curve = [{"epoch": e, "validation/nll": loss(trial, e)} for e in range(1, epochs + 1)]
    hyperparameters = trial.config.hyperparameters
    measured = {
        "nll": curve[-1]["validation/nll"],
        "error": hyperparameters["gamma"] / 10,
        "ece": hyperparameters["lr"],
    }
    trained = {"config": {}, "environment": {}}
    trained |= {"curve": curve, "times": [1.0 * row["epoch"] for row in curve], "epochs": epochs}
    return trained | {"seconds": 1.0 * epochs, "validation": measured}


def train(plan: Plan, trial: PlannedTrial) -> bool:
    """As a worker would: to the end, or until a rung stops it; True if it came to its end."""
    study = plan.cells[trial.cell].study
    rungs = study.rungs if trial.config.phase == "search" else []
    for rung in rungs:
        if plan.report(trial, body(trial, rung)):
            plan.complete(trial.key)
            return False
    plan.store.file_record(trial.key, outcome(**body(trial, 27)))
    if trial.config.phase == "confirm":
        plan.store.write_evaluation(
            trial.key, plan.spec.evaluation.tag, "identity", evaluation("identity")
        )
    plan.complete(trial.key)
    return True


def run_out(plan: Plan, limit: float = math.inf) -> list[tuple[str, bool]]:
    trained: list[tuple[str, bool]] = []
    while len(trained) < limit and (trial := plan.next()) is not None:
        trained.append((trial.key, train(plan, trial)))
    return trained


@pytest.mark.parametrize("scheduler", ["asha", "{name: median, grace: 3}"])
@pytest.mark.parametrize("stopped_after", [3, 11, 17])
def test_a_resumed_sweep_stops_the_trials_that_an_uninterrupted_one_stops(
    tmp_path: Path, scheduler: str, stopped_after: int
) -> None:
    more = f"search: {{sampler: tpe, trials: 20}}\nscheduler: {scheduler}\n"
    whole = fresh(tmp_path / "whole", more)
    once = run_out(whole)
    assert 0 < whole.pruned < 20
    assert whole.done == whole.total == 21
    first = run_out(fresh(tmp_path / "parts", more), limit=stopped_after)
    second = fresh(tmp_path / "parts", more)
    assert first + run_out(second) == once
    assert second.pruned == whole.pruned


def test_a_stopped_trial_is_filed_with_its_reason_and_never_wins(tmp_path: Path) -> None:
    plan = fresh(tmp_path, "search: {sampler: random, trials: 30}\nscheduler: asha\n")
    stopped = {key for key, ended in run_out(plan) if not ended}
    (cell,) = plan.cells.values()
    best = plan.search_trial(cell, cell.study.best())
    assert best.key not in stopped
    for key in stopped:
        assert plan.store.record(key) is None, "another sweep may want it whole"
        record = plan.store.outcome("engine", cell.study_id, key)
        assert record.status == "pruned"
        assert record.reason.startswith("stopped by asha after epoch")
        assert record.epochs < 27


def test_without_a_scheduler_the_same_trials_are_trained_whole(tmp_path: Path) -> None:
    search = "search: {sampler: random, trials: 30}\n"
    run_out(fresh(tmp_path, search + "scheduler: asha\n"))
    plan = fresh(tmp_path, search)
    assert plan.pruned == 0
    run_out(plan)
    assert plan.pruned == 0
    assert plan.done == plan.total


@pytest.mark.parametrize("sampler", ["tpe", "random", "nsga2", "cmaes"])
def test_an_extended_sweep_is_the_larger_one(tmp_path: Path, sampler: str) -> None:
    def suggested(plan: Plan) -> list[dict[str, Any]]:
        (cell,) = plan.cells.values()
        return [plan.search_trial(cell, n).config.hyperparameters for n in range(14)]

    run_out(fresh(tmp_path / "a", f"search: {{sampler: {sampler}, trials: 9}}\n"))
    by_option = fresh(
        tmp_path / "a", f"search: {{sampler: {sampler}, trials: 9}}\n", Options(extra=5)
    )
    run_out(by_option)
    whole = fresh(tmp_path / "b", f"search: {{sampler: {sampler}, trials: 14}}\n")
    run_out(whole)
    assert suggested(by_option) == suggested(whole)
    assert by_option.done == by_option.total == whole.total == 15


def test_what_one_sweep_stopped_stays_stopped_when_another_trains_it(tmp_path: Path) -> None:
    search = "search: {sampler: random, trials: 30}\n"
    first = fresh(tmp_path, search + "scheduler: asha\n")
    run_out(first)
    run_out(fresh(tmp_path, search))
    again = fresh(tmp_path, search + "scheduler: asha\n")
    assert again.finished
    assert again.pruned == first.pruned


def test_a_search_bounded_by_time_confirms_the_same_after_a_restart(tmp_path: Path) -> None:
    """The trial that spends the time ends before a better one that runs beside it."""
    spec = "search: {sampler: random, time: 20s}\n"
    plan = fresh(tmp_path, spec)
    one, other = plan.next(), plan.next()
    better, worse = sorted((one, other), key=lambda trial: loss(trial, 27))
    train(plan, worse)
    train(plan, better)
    run_out(plan)
    assert (
        plan.confirmed("blobs-1.7", "focal")[0].config.hyperparameters["lr"]
        == (better.config.hyperparameters["lr"])
    )
    again = fresh(tmp_path, spec)
    assert again.finished
    assert again.done == again.total == 3


def test_a_search_bounded_by_time_does_not_suggest_a_small_space_for_ever(tmp_path: Path) -> None:
    small = "methods: {focal: {lr: 0.1, weight_decay: 0, gamma: [1, 2]}}\n"
    (tmp_path / "engine.yaml").write_text(
        SPEC.replace(SPEC[SPEC.index("methods") : SPEC.index("training")], small)
        + "search: {sampler: random, time: 10h}\n"
    )
    plan = Plan(load_spec(tmp_path / "engine.yaml"), Store(tmp_path / "runs"))
    run_out(plan)
    assert plan.finished
    assert plan.done == plan.total == 2 + 1


def test_a_search_bounded_by_time_ends_when_it_is_spent(tmp_path: Path) -> None:
    plan = fresh(tmp_path, "search: {sampler: random, time: 100s}\n")
    run_out(plan)
    assert plan.finished
    assert plan.done == plan.total == 4 + 1  # 27 s each: the fourth spends the hundred
    assert fresh(tmp_path, "search: {sampler: random, time: 100s}\n").finished


def test_several_objectives_keep_the_set_that_nothing_beats(tmp_path: Path) -> None:
    plan = fresh(tmp_path, "search: {sampler: random, trials: 25, objective: [error, ece]}\n")
    run_out(plan)
    table = pareto(records_of(plan))
    points = {
        n: (e.config.hyperparameters["gamma"] / 10, e.config.hyperparameters["lr"])
        for n in range(25)
        for (cell,) in [plan.cells.values()]
        for e in [plan.search_trial(cell, n)]
    }
    unbeaten = {
        n
        for n, (a, b) in points.items()
        if not any(c <= a and d <= b and (c, d) != (a, b) for c, d in points.values())
    }
    assert set(table["trial"]) == unbeaten
    assert list(zip(table["error"], table["ece"], strict=True)) == [
        points[n] for n in table["trial"]
    ]
    assert table["confirmed"].sum() == 1


def test_a_dead_process_is_begun_again_and_then_given_up(tmp_path: Path) -> None:
    plan = fresh(tmp_path, "search: {sampler: random, trials: 2}\nretries: 2\n")
    first = plan.next()
    for _ in range(2):
        plan.died(first, "lost")
        assert plan.next() == first
    plan.died(first, "killed by the kernel")
    record = plan.store.record(first.key)
    assert record.status == "failed"
    assert record.reason == "its process died 3 times; the last cause: killed by the kernel"
    run_out(plan)
    assert plan.finished
    assert plan.failed == 1
    assert plan.done == plan.total == 3


def searching(plan: Plan) -> PlanSearcher:
    return PlanSearcher(plan, Terms.of(plan.spec, plan.store.root), lambda trial: None)


def test_an_edited_live_curve_does_not_keep_a_trial_from_being_given_up(tmp_path: Path) -> None:
    plan = fresh(tmp_path, "search: {sampler: random, trials: 1}\nretries: 0\n")
    first = plan.next()
    live = {"lineage": "a", "times": [], "curve": [{"epoch": 2.0}, {"epoch": 1.0}]}
    plan.store.write_live(first.key, live)
    plan.died(first, "lost")
    record = plan.store.record(first.key)
    assert (record.status, record.curve) == ("failed", ())
    assert plan.failed == 1


def test_a_trial_may_be_stopped_before_any_epoch_was_the_best(tmp_path: Path) -> None:
    plan = fresh(tmp_path, "search: {sampler: random, trials: 1}\n")
    first = plan.next()
    stopped = outcome("pruned", reason="stopped by asha", validation={})
    plan.store.file_stopped("engine", first.study_id, first.key, stopped)
    assert plan.store.stopped("engine", first.study_id, first.key).status == "pruned"


def test_a_node_that_cannot_train_ends_the_sweep_only_if_no_other_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    unfit = {"done": True, "unfit": "node 10.0.0.9 does not see the store"}
    searcher = searching(fresh(tmp_path / "first", "retries: 0\n"))
    searcher.suggest("a")
    with pytest.raises(StoreError, match=r"10\.0\.0\.9"):
        searcher.on_trial_complete("a", unfit)
    assert searcher.failure is not None

    plan = fresh(tmp_path / "later", "retries: 0\n")
    searcher = searching(plan)
    scheduler = PlanScheduler(searcher)
    given = {name: searcher.suggest(name) for name in ("a", "b")}
    assert scheduler.on_trial_result(None, None, {"done": False}) == "CONTINUE"  # of trial b
    for name in ("a", "c", "d"):
        searcher.on_trial_complete(name, unfit)
        following = {"a": "c", "c": "d", "d": "e"}[name]
        assert searcher.suggest(following) == given["a"]
    assert searcher.failure is None
    assert plan.failed == 0
    assert caplog.text.count("its trials go to other nodes") == 1


def test_a_process_that_dies_after_filing_its_record_costs_nothing(tmp_path: Path) -> None:
    plan = fresh(tmp_path, "search: {sampler: random, trials: 1}\nretries: 0\n")
    trial = plan.next()
    plan.store.file_record(trial.key, outcome(**body(trial, 27)))
    plan.died(trial, "lost")
    assert plan.done == 1
    assert plan.failed == 0


def test_failed_trials_are_retired_and_queued_again_on_request_only(tmp_path: Path) -> None:
    search = "search: {sampler: random, trials: 4}\n"
    plan = fresh(tmp_path, search)
    bad = plan.next()
    plan.store.file_record(bad.key, outcome("failed"))
    plan.complete(bad.key)
    run_out(plan)
    assert plan.reasons == {"a bug": 1}
    assert fresh(tmp_path, search).finished
    again = fresh(tmp_path, search, Options(retry_failed=True))
    assert next(key for key, _ in run_out(again)) == bad.key
    assert again.failed == 0
    assert list((tmp_path / "runs" / "retired").rglob("record.json"))


def test_a_damaged_suggestion_is_made_again(tmp_path: Path) -> None:
    search = "search: {sampler: tpe, trials: 8}\n"
    plan = fresh(tmp_path, search)
    run_out(plan)
    files = sorted((tmp_path / "runs" / "engine" / "suggestions").rglob("*.json"))
    before = files[6].read_bytes()
    files[6].write_bytes(before[:-9])
    assert fresh(tmp_path, search).finished
    assert files[6].read_bytes() == before


def test_values_at_rungs_are_the_best_so_far_of_the_evaluated_epochs() -> None:
    curve = [
        {"epoch": 1},
        {"epoch": 2, "validation/nll": 0.5},
        {"epoch": 3},
        {"epoch": 4, "validation/nll": 0.7},
    ]
    assert rung_values(curve, [1, 2, 3, 4, 9]) == {2: 0.5, 3: 0.5, 4: 0.5}
    assert rung_values([{"epoch": 5, "validation/nll": "inf"}], [1, 4]) == {}
    # Several epochs in one step may pass more than one rung.
    assert rung_values([{"epoch": 5, "validation/nll": 0.2}], [1, 4, 6]) == {1: 0.2, 4: 0.2}


def test_failures_of_both_phases_are_tried_again(tmp_path: Path) -> None:
    search = "search: {sampler: random, trials: 3}\nconfirm_seeds: 2\n"
    (tmp_path / "engine.yaml").write_text(SPEC.replace("confirm_seeds: 1\n", "") + search)

    def plan(**options: Any) -> Plan:
        made = Plan(
            load_spec(tmp_path / "engine.yaml"), Store(tmp_path / "runs"), Options(**options)
        )
        made.replay()
        return made

    first, failed = plan(), set()
    while (trial := first.next()) is not None:
        if len(failed) < 1 or (trial.config.phase == "confirm" and len(failed) < 2):
            failed.add(trial.key)
            record = outcome("failed")
            first.store.file_record(trial.key, record)
            first.complete(trial.key)
        else:
            train(first, trial)
    assert first.failed == 2
    again = plan(retry_failed=True)
    trained = {key for key, _ in run_out(again)}
    assert again.failed == 0
    assert trained >= failed
    assert plan().finished


def test_a_decision_that_was_lost_is_made_before_a_trial_goes_on(tmp_path: Path) -> None:
    """Stopped at one rung, it must not be saved by how it did at the next."""
    plan = fresh(tmp_path, "search: {sampler: random, trials: 30}\nscheduler: asha\n")
    stopped = []
    while (trial := plan.next()) is not None:
        rungs = plan.cells[trial.cell].study.rungs
        if trial.config.phase == "search" and plan.report(trial, body(trial, rungs[-1])):
            stopped.append(trial.key)
            plan.complete(trial.key)
        else:
            train(plan, trial)
    assert plan.pruned == len(stopped) > 0
