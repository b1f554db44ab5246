"""The plan with everything that can happen to a trial: stopped, failed, dead, tried again."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from sweeps.plan import Entry, Options, Plan
from sweeps.report.results import pareto
from sweeps.spec import load_spec
from sweeps.store import Store
from sweeps.trial import rung_values

SPEC = """\
name: engine
datasets: [blobs-1.7]
model: {name: mlp, widths: [4]}
methods: {focal: {lr: {loguniform: [0.001, 1]}, weight_decay: 0, gamma: {uniform: [0, 5]}}}
training: {epochs: 27, batch_size: full}
confirm_seeds: 1
post_hoc: []
"""


def fresh(place: Path, more: str, options: Options | None = None) -> Plan:
    place.mkdir(exist_ok=True)
    (place / "engine.yaml").write_text(SPEC + more)
    plan = Plan(load_spec(place / "engine.yaml"), Store(place / "runs"), options)
    plan.replay()
    return plan


def loss(entry: Entry, epoch: int) -> float:
    knobs = entry.config.hyperparameters
    return (math.log10(knobs["lr"]) + 2) ** 2 + (knobs["gamma"] - 3) ** 2 + 1 / epoch


def body(entry: Entry, epochs: int) -> dict[str, Any]:
    """What a trial's record would say after so many epochs."""
    curve = [{"epoch": e, "val/nll": loss(entry, e)} for e in range(1, epochs + 1)]
    knobs = entry.config.hyperparameters
    measured = {"nll": curve[-1]["val/nll"], "error": knobs["gamma"] / 10, "ece": knobs["lr"]}
    return {"curve": curve, "epochs": epochs, "seconds": 1.0 * epochs, "validation": measured}


def train(plan: Plan, entry: Entry) -> bool:
    """As a worker would: to the end, or until a rung stops it; True if it came to its end."""
    study = plan.cells[entry.cell].study
    rungs = study.rungs if entry.config.phase == "search" else []
    for rung in rungs:
        if plan.report(entry, body(entry, rung)):
            plan.complete(entry.key)
            return False
    plan.store.file_record(entry.key, body(entry, 27) | {"status": "done", "reason": ""})
    if entry.config.phase == "confirm":
        plan.store.write_map(entry.key, plan.spec.evaluation.tag, "identity", {})
    plan.complete(entry.key)
    return True


def run_out(plan: Plan, limit: float = math.inf) -> list[tuple[str, bool]]:
    trained: list[tuple[str, bool]] = []
    while len(trained) < limit and (entry := plan.next()) is not None:
        trained.append((entry.key, train(plan, entry)))
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
    best = plan.search_entry(cell, cell.study.best())
    assert best.key not in stopped
    for key in stopped:
        assert plan.store.record(key) is None, "another sweep may want it whole"
        record = plan.store.outcome("engine", cell.study_id, key)
        assert record["status"] == "pruned"
        assert record["reason"].startswith("stopped by asha after epoch")
        assert record["epochs"] < 27


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
        return [plan.search_entry(cell, n).config.hyperparameters for n in range(14)]

    run_out(fresh(tmp_path / "a", f"search: {{sampler: {sampler}, trials: 9}}\n"))
    by_option = fresh(
        tmp_path / "a", f"search: {{sampler: {sampler}, trials: 9}}\n", Options(extra=5)
    )
    run_out(by_option)
    whole = fresh(tmp_path / "b", f"search: {{sampler: {sampler}, trials: 14}}\n")
    run_out(whole)
    assert suggested(by_option) == suggested(whole)
    assert by_option.done == by_option.total == whole.total == 15


def test_a_search_bounded_by_time_ends_when_it_is_spent(tmp_path: Path) -> None:
    plan = fresh(tmp_path, "search: {sampler: random, time: 100s}\n")
    run_out(plan)
    assert plan.finished
    assert plan.done == plan.total == 4 + 1  # 27 s each: the fourth spends the hundred
    assert fresh(tmp_path, "search: {sampler: random, time: 100s}\n").finished


def test_several_objectives_keep_the_set_that_nothing_beats(tmp_path: Path) -> None:
    plan = fresh(tmp_path, "search: {sampler: random, trials: 25, objective: [error, ece]}\n")
    run_out(plan)
    table = pareto(plan)
    points = {
        n: (e.config.hyperparameters["gamma"] / 10, e.config.hyperparameters["lr"])
        for n in range(25)
        for (cell,) in [plan.cells.values()]
        for e in [plan.search_entry(cell, n)]
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
    assert record["status"] == "failed"
    assert record["reason"] == "its process died 3 times, the last time so: killed by the kernel"
    run_out(plan)
    assert plan.finished
    assert plan.failed == 1
    assert plan.done == plan.total == 3


def test_a_process_that_dies_after_filing_its_record_costs_nothing(tmp_path: Path) -> None:
    plan = fresh(tmp_path, "search: {sampler: random, trials: 1}\nretries: 0\n")
    entry = plan.next()
    plan.store.file_record(entry.key, body(entry, 27) | {"status": "done", "reason": ""})
    plan.died(entry, "lost")
    assert plan.done == 1
    assert plan.failed == 0


def test_failed_trials_are_retired_and_queued_again_on_request_only(tmp_path: Path) -> None:
    search = "search: {sampler: random, trials: 4}\n"
    plan = fresh(tmp_path, search)
    bad = plan.next()
    plan.store.file_record(bad.key, {"status": "failed", "reason": "a bug", "config": {}})
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
    curve = [{"epoch": 1}, {"epoch": 2, "val/nll": 0.5}, {"epoch": 3}, {"epoch": 4, "val/nll": 0.7}]
    assert rung_values(curve, [1, 2, 3, 4, 9]) == {2: 0.5, 3: 0.5, 4: 0.5}
    assert rung_values([{"epoch": 5, "val/nll": "inf"}], [1, 4]) == {}
    # Several epochs in one step may pass more than one rung.
    assert rung_values([{"epoch": 5, "val/nll": 0.2}], [1, 4, 6]) == {1: 0.2, 4: 0.2}
