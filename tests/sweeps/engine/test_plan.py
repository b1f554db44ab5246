"""The plan: order, exactly-once, resumption from the store, and keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.engine.cell import PlannedTrial
from sweeps.engine.plan import Plan
from sweeps.search import SAMPLERS
from sweeps.spec import load_spec
from sweeps.store import Store
from tests.outcomes import evaluation, outcome

SPEC = """\
name: planned
datasets: [blobs-1.7, iris]
model: {name: mlp, widths: [4]}
methods: {standard: {weight_decay: 0}, focal: {lr: 0.1, weight_decay: 0, gamma: [1, 2, 3]}}
search: {trials: 4}
confirm_seeds: 2
calibrators: [temperature]
"""


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return fresh(tmp_path)


def fresh(tmp_path: Path, text: str = SPEC) -> Plan:
    path = tmp_path / "planned.yaml"
    path.write_text(text)
    made = Plan(load_spec(path), Store(tmp_path / "runs"))
    made.replay()
    return made


def train(plan: Plan, trial: PlannedTrial) -> None:
    """File the record a real trial would; its objective depends on the hyperparameters only."""
    hyperparameters = trial.config.hyperparameters
    value = float(hyperparameters["lr"]) + float(hyperparameters.get("gamma", 0))
    plan.store.file_record(trial.key, outcome(validation={"nll": value}))
    if trial.config.phase == "confirm":
        for name in plan.spec.calibrator_names:
            plan.store.write_evaluation(trial.key, plan.spec.evaluation.tag, name, evaluation(name))


def run_out(plan: Plan, limit: int | None = None) -> list[str]:
    trained: list[str] = []
    while (trial := plan.next()) is not None and (limit is None or len(trained) < limit):
        train(plan, trial)
        plan.complete(trial.key)
        trained.append(trial.key)
    return trained


def test_every_cell_gets_its_budget_and_its_confirmation(plan: Plan) -> None:
    keys = run_out(plan)
    assert plan.finished
    assert plan.done == plan.total == 4 * (4 + 2)
    assert len(keys) == len(set(keys))
    for cell in plan.cells.values():
        confirmed = plan.confirmed(cell.dataset, cell.row)
        assert [e.config.seed for e in confirmed] == [1, 2]
        best = min(plan.trials.values(), key=lambda e: _objective(e, cell.dataset, cell.row))
        assert confirmed[0].config.hyperparameters == best.config.hyperparameters


def _objective(trial: PlannedTrial, dataset: str, method: str) -> float:
    if trial.cell != (dataset, method) or trial.config.phase != "search":
        return float("inf")
    hyperparameters = trial.config.hyperparameters
    return float(hyperparameters["lr"]) + float(hyperparameters.get("gamma", 0))


def test_methods_take_turns(plan: Plan) -> None:
    first = [plan.next() for _ in range(4)]
    assert len({trial.cell for trial in first if trial}) == 4


def test_a_repeated_suggestion_costs_nothing(tmp_path: Path) -> None:
    text = SPEC.replace("gamma: [1, 2, 3]", "gamma: [1, 2]").replace("trials: 4", "trials: 8")
    plan = fresh(tmp_path, text)
    keys = run_out(plan)
    searched = [e for e in plan.trials.values() if e.config.phase == "search"]
    focal = [e.key for e in searched if e.config.method == "focal"]
    assert len(focal) == 16
    assert len(set(focal)) == 4
    assert len(keys) == 2 * 8 + 4 + 8
    assert plan.done == plan.total


def test_a_suggestion_equal_to_a_running_trial_waits_for_it(tmp_path: Path) -> None:
    text = SPEC.replace("gamma: [1, 2, 3]", "gamma: 1.0").replace("[blobs-1.7, iris]", "[iris]")
    text = text.replace("standard: {weight_decay: 0}, ", "").replace("lr: 0.1", "lr: [0.1, 0.2]")
    plan = fresh(tmp_path, text)
    running = []
    while (trial := plan.next()) is not None:
        running.append(trial)
    assert 1 <= len(running) <= 2  # four suggestions, two distinct
    for trial in running:
        train(plan, trial)
        plan.complete(trial.key)
    assert next(iter(plan.cells.values())).study.finished


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_repeated_suggestions_survive_a_restart(tmp_path: Path, slots: int) -> None:
    """Several suggestions of one key, all persisted before any record: each settles once."""
    text = SPEC.replace("gamma: [1, 2, 3]", "gamma: [1, 2]").replace("[blobs-1.7, iris]", "[iris]")
    text = text.replace("standard: {weight_decay: 0}, ", "")
    text = text.replace("search: {trials: 4}", "search: {trials: 9, sampler: random}")
    interrupted = fresh(tmp_path, text)
    while interrupted.next() is not None:
        pass  # everything is suggested and nothing is trained
    plan = fresh(tmp_path, text)
    handed_out: list[str] = []
    while not plan.finished:
        running = []
        while len(running) < slots and (trial := plan.next()) is not None:
            running.append(trial)
        for trial in running:
            handed_out.append(trial.key)
            train(plan, trial)
            plan.complete(trial.key)
    assert len(handed_out) == len(set(handed_out)) == plan.trained == 2 + 2
    assert plan.done == plan.total == 9 + 2


def test_other_bins_are_evaluated_anew_and_nothing_is_trained(tmp_path: Path) -> None:
    run_out(fresh(tmp_path))
    finer = fresh(tmp_path, SPEC + "bins: 30\n")
    trials = []
    while (trial := finer.next()) is not None:
        trials.append(trial)
    assert {trial.config.phase for trial in trials} == {"confirm"}
    assert len(trials) == 4 * 2
    assert finer.trained == 0


def test_nothing_is_confirmed_before_its_search_has_ended(plan: Plan) -> None:
    run_out(plan, limit=3)
    assert all(plan.confirmed(*cell) == [] for cell in plan.cells)


@pytest.mark.parametrize("stop_after", [0, 1, 5, 13, 19, 23])
def test_a_new_plan_continues_where_the_old_one_stopped(tmp_path: Path, stop_after: int) -> None:
    (tmp_path / "whole").mkdir()
    undisturbed = run_out(fresh(tmp_path / "whole"))
    before = run_out(fresh(tmp_path), limit=stop_after)
    resumed = fresh(tmp_path)
    after = run_out(resumed)
    assert not set(before) & set(after)
    assert set(before) | set(after) == set(undisturbed)
    assert resumed.done == resumed.total
    assert fresh(tmp_path).next() is None


def test_more_trials_continue_the_same_studies(tmp_path: Path) -> None:
    first = run_out(fresh(tmp_path))
    extended = fresh(tmp_path, SPEC.replace("trials: 4", "trials: 6"))
    searched_before = {e.key for e in extended.trials.values() if e.config.phase == "search"}
    assert searched_before <= set(first)
    run_out(extended)
    assert extended.done == extended.total == 4 * 8


def test_a_changed_training_starts_new_studies(tmp_path: Path) -> None:
    run_out(fresh(tmp_path))
    changed = fresh(tmp_path, SPEC + "training: {epochs: 3}\n")
    assert changed.done == 0


def test_a_failed_trial_never_wins_and_hopeless_methods_are_not_confirmed(tmp_path: Path) -> None:
    plan = fresh(tmp_path)
    while (trial := plan.next()) is not None:
        if trial.config.method == "focal":
            plan.store.file_record(trial.key, outcome("failed"))
        else:
            train(plan, trial)
        plan.complete(trial.key)
    assert plan.finished
    assert plan.failed == 8
    assert plan.confirmed("iris", "focal") == []
    assert len(plan.confirmed("iris", "standard")) == 2


TABLE = """\
name: table
datasets: [{name: table, path: rows.csv, target: label}]
model: {name: mlp, widths: [4]}
methods: {standard: {weight_decay: 0}}
search: {trials: 3}
confirm_seeds: 2
calibrators: [temperature]
"""


def test_a_sweep_that_moves_with_its_data_stays_the_same(tmp_path: Path) -> None:
    """What is in a file decides, not where it lies."""
    rows = "\n".join(f"{i % 7},{'ab'[i % 2]}" for i in range(200))
    plans = []
    for place in ("here", "there"):
        directory = tmp_path / place
        directory.mkdir()
        (directory / "rows.csv").write_text(f"x,label\n{rows}\n")
        (directory / "planned.yaml").write_text(TABLE)
        plans.append(Plan(load_spec(directory / "planned.yaml"), Store(tmp_path / "runs")))
    here, there = (plan.cells["rows", "standard"] for plan in plans)
    assert here.study_id == there.study_id


ROUNDS = """\
name: planned
datasets: [iris]
model: {name: mlp, widths: [4]}
methods: {standard: {weight_decay: 0}}
search: {sampler: tpe, trials: 14, batch: 4}
confirm_seeds: 1
calibrators: []
"""


def searched(plan: Plan, workers: int, limit: int = 100) -> list[object]:
    """What is suggested where so many train at once and the last to begin ends first."""
    running: list[PlannedTrial] = []
    for _ in range(limit):
        while len(running) < workers and (trial := plan.next()) is not None:
            running.append(trial)
        if not running:
            break
        train(plan, running[-1])
        plan.complete(running.pop().key)
    (cell,) = plan.cells.values()
    return [plan.searched(trial) for trial in plan.search_trials(cell)]


def test_rounds_suggest_the_same_whenever_results_come_in(tmp_path: Path) -> None:
    found = [searched(fresh(tmp_path_of(tmp_path, n), ROUNDS), n) for n in (1, 3, 9)]
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 14
    # Interrupted anywhere, in the midst of asking for a round too, and taken up by more workers.
    for trained, lost in ((2, 0), (5, 2), (6, 1)):
        place = tmp_path_of(tmp_path, 100 + trained)
        searched(fresh(place, ROUNDS), 2, limit=trained)
        for path in sorted(place.rglob("suggestions/**/*.json"))[-lost or 999 :]:
            path.unlink()
        assert searched(fresh(place, ROUNDS), 5) == found[0]


def test_rounds_are_another_search_and_a_cohort_is_not(tmp_path: Path) -> None:
    without = fresh(tmp_path, ROUNDS.replace(", batch: 4", ""))
    (plain,) = without.cells.values()
    (rounds,) = fresh(tmp_path, ROUNDS).cells.values()
    (cohort,) = fresh(tmp_path, ROUNDS.replace(", batch: 4", "") + "cohort: auto\n").cells.values()
    assert plain.study_id == cohort.study_id != rounds.study_id


def test_auto_groups_what_may_gain_until_a_worker_says_otherwise(tmp_path: Path) -> None:
    random = ROUNDS.replace("tpe", "random").replace(", batch: 4", "").replace("14", "40")

    def plan_of(number: int, model: str, batch: int = 64) -> Plan:
        text = random.replace("{name: mlp, widths: [4]}", model)
        training = f"training: {{batch_size: {batch}}}\ncohort: auto\n"
        return fresh(tmp_path_of(tmp_path, number), text + training)

    assert len(plan_of(1, "{name: mlp, widths: [64, 64]}").next_cohort(workers=2)) == 16
    large = plan_of(2, "{name: mlp, widths: [4096, 4096]}", batch=128)
    assert len(large.next_cohort(workers=2)) == 1
    plan = plan_of(3, "{name: mlp, widths: [32]}")
    first = plan.next_cohort(workers=2)
    plan.keep_apart("of a trial that has ended")
    second = plan.next_cohort(workers=2)
    plan.keep_apart(second[0].key)
    rest = [plan.next_cohort(workers=2) for _ in range(40 - len(first) - len(second))]
    assert [len(first), len(second)] == [16, 16]
    assert all(len(cohort) == 1 for cohort in rest)
    # Who trains beside whom decides nothing else.
    alone = fresh(tmp_path_of(tmp_path, 4), random.replace("[4]", "[32]") + "cohort: 1\n")
    asked = [plan.searched(trial) for cohort in (first, second, *rest) for trial in cohort]
    assert asked == [alone.searched(trial) for _ in range(40) if (trial := alone.next())]


def test_a_gpu_that_holds_few_makes_small_cohorts(tmp_path: Path) -> None:
    plan = fresh(tmp_path, ROUNDS + "cohort: 4\n")
    plan.limit_cohorts(3)
    assert len(plan.next_cohort(workers=1)) == 3


def tmp_path_of(place: Path, number: int) -> Path:
    made = place / str(number)
    made.mkdir()
    return made


@pytest.mark.parametrize("sampler", ["tpe", "gp", "random", "grid", "nsga2", "cmaes"])
def test_what_is_asked_ahead_is_what_would_be_asked_later(tmp_path: Path, sampler: str) -> None:
    text = ROUNDS.replace("tpe", sampler).replace(", batch: 4", "").replace("14", "9")
    later = searched(fresh(tmp_path_of(tmp_path, 1), text), 1)
    plan = fresh(tmp_path_of(tmp_path, 2), text + "cohort: 50\n")
    first = plan.next_cohort(workers=1)
    ahead = [plan.searched(trial) for trial in first]
    assert ahead == later[: len(ahead)]
    learns, startup = SAMPLERS[sampler].learns, SAMPLERS[sampler].startup
    assert len(ahead) == (max(1, startup) if learns else len(later))
