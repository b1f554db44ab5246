"""Sweeps trained in cohorts, by the driver's and the workers' own code but for Ray itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch.nn import functional as F

from calibration.methods import LossMethod
from sweeps.engine import trial as trial_module
from sweeps.engine.plan import Plan
from sweeps.ray_backend import trainable
from sweeps.ray_backend.assignment import ASSIGNMENT, Assignment, Terms
from sweeps.ray_backend.searcher import PlanScheduler, PlanSearcher
from sweeps.ray_backend.trainable import CalibrationTrial
from sweeps.spec import load_spec
from sweeps.store import Store, TrialRecord
from tests.trained import no_pictures

SPEC = """\
name: cohorts
datasets: [blobs-1.7]
model: {name: mlp, widths: [16]}
methods:
  standard: {lr: {loguniform: [0.001, 0.1]}, weight_decay: 0}
  mixup: {lr: 0.01, weight_decay: 0, alpha: {uniform: [0.1, 1.0]}}
training: {epochs: 4, batch_size: 64}
search: {sampler: random, trials: 5}
confirm_seeds: 4
calibrators: []
"""
WORKERS = 2


class Fragile(LossMethod):
    """Fails after its first epoch where the learning rate is above 0.01."""

    description = "cross-entropy that breaks"

    def loss(self, output: Any, labels: Any, numbers: Any) -> Any:
        return F.cross_entropy(output.logits, labels)

    def describe(self, state: Any, seen: Any, numbers: Any) -> dict[str, Any]:
        if float(numbers["lr"]) > 0.01:
            raise LookupError("too fast")
        return {}


class Here:
    """Tune in this process: as many workers as there are, one block each in turn."""

    def __init__(self, plan: Plan, block: float = 600.0) -> None:
        terms = replace(Terms.of(plan.spec, plan.store.root), block=block)
        self.plan, self.sizes = plan, list[int]()
        self.searcher = PlanSearcher(plan, terms, lambda trial: None, room=lambda: WORKERS)
        self.scheduler = PlanScheduler(self.searcher)
        self.working: dict[str, CalibrationTrial] = {}

    def fill(self) -> None:
        while isinstance(given := self.searcher.suggest(f"t{len(self.sizes)}"), dict):
            assigned: Assignment = given[ASSIGNMENT]
            self.working[f"t{len(self.sizes)}"] = CalibrationTrial(given)
            self.sizes.append(len(assigned.members))

    def round(self) -> None:
        """Every worker trains one block."""
        for name, worker in list(self.working.items()):
            result = worker.step()
            about = SimpleNamespace(trial_id=name)
            if result["done"] or self.scheduler.on_trial_result(None, about, result) == "STOP":
                del self.working[name]
                self.searcher.on_trial_complete(name, result)

    def die(self, cause: str = "killed") -> None:
        """The first worker's process is gone."""
        name = next(iter(self.working))
        del self.working[name]
        self.searcher.causes[name] = cause
        self.searcher.on_trial_complete(name, error=True)

    @no_pictures()
    def run_out(self) -> None:
        while not self.plan.finished:
            self.fill()
            self.round()


def fresh(place: Path, text: str) -> Plan:
    place.mkdir(exist_ok=True)
    (place / "spec.yaml").write_text(text)
    plan = Plan(load_spec(place / "spec.yaml"), Store(place / "runs"))
    plan.replay()
    return plan


def swept(place: Path, text: str) -> Here:
    here = Here(fresh(place, text))
    here.run_out()
    return here


def numbers(plan: Plan, key: str) -> dict[str, Any]:
    """All that a trial left but times, and who trained beside it."""
    record = plan.store.record(key)
    assert record is not None
    passing = {"times", "seconds", "cpu_seconds", "resources", "lineage", "attempt", "files"}
    found = record.model_dump(exclude=passing)
    if record.status == "done":
        found |= {n: v.tolist() for n, v in plan.store.predictions(record).items()}
        evaluations = plan.store.evaluations(record, plan.spec.evaluation.tag)
        found["test"] = {name: (e.test, e.intervals) for name, e in evaluations.items()}
    return found


def records(plan: Plan) -> dict[str, TrialRecord]:
    return {key: record for key in plan.store.trial_keys() if (record := plan.store.record(key))}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return swept(tmp_path_factory.mktemp("alone"), SPEC).plan


def test_a_sweep_leaves_the_same_records_in_cohorts(alone: Plan, tmp_path: Path) -> None:
    here = swept(tmp_path, SPEC + "cohort: 3\n")
    found, expected = records(here.plan), records(alone)
    assert found.keys() == expected.keys()
    assert here.plan.done == here.plan.total == alone.total == 2 * (5 + 4)
    assert {key: numbers(here.plan, key) for key in found} == {
        key: numbers(alone, key) for key in found
    }
    # Of five suggestions a worker is given its half; of the seeds one is alone: its time counts.
    assert (sum(here.sizes), max(here.sizes)) == (18, 3)
    together = sum(size for size in here.sizes if size > 1)
    assert sum(record.company > 1 for record in found.values()) == together > 9
    assert {record.company for record in expected.values()} == {1}
    for cell in here.plan.cells.values():
        first, *others = here.plan.confirmed(cell.dataset, cell.row)
        assert found[first.key].company == 1 < found[others[0].key].company


FRAGILE = """\
name: cohorts
datasets: [blobs-1.7]
model: {name: mlp, widths: [16]}
methods:
  fragile:
    method: "tests.sweeps.engine.test_cohort_sweeps:Fragile"
    grid: [{lr: 0.001}, {lr: 0.02}, {lr: 0.003}, {lr: 0.002}]
    weight_decay: 0
training: {epochs: 40, batch_size: 64}
search: {sampler: grid}
confirm_seeds: 1
calibrators: []
retries: 0
cohort: 8
"""


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint after the first epoch, and then as often as it is worth its time."""
    monkeypatch.setattr(trial_module, "CHECKPOINT_SECONDS", 0.0)


def test_who_fails_or_dies_takes_nobody_along(
    tmp_path: Path, eager: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One member raises, then the process dies: every epoch once, and no trial is charged."""
    here = Here(fresh(tmp_path, FRAGILE), block=0.001)
    monkeypatch.setattr(here.searcher, "room", lambda: 1)
    here.fill()
    assert here.sizes == [4]
    while here.plan.done == 0:
        here.round()
    assert [record.reason for record in records(here.plan).values()] == ["LookupError: too fast"]
    (worker,) = here.working.values()
    for _ in range(3):
        here.round()
    reached = {trial.key: trial.run.epoch for trial in worker.cohort.trials if trial.run}
    assert len(reached) == 3
    assert 1 < min(reached.values()) < 40
    here.die()
    here.fill()
    assert here.sizes == [4, 1]
    (worker,) = here.working.values()
    here.round()  # one epoch more, from its own checkpoint
    (trial,) = worker.cohort.trials
    assert trial.run is not None
    assert trial.run.epoch > 1
    here.run_out()
    assert (here.plan.done, here.plan.failed) == (5, 1)
    assert here.sizes == [4, 1, 1, 1, 1]
    for key, record in records(here.plan).items():
        if record.status == "done":
            assert [row["epoch"] for row in record.curve] == list(range(1, 41))
            assert record.company == (4 if key in reached else 1)


class Overdue:
    """A watchdog that finds every trial hanging, and ends its process."""

    def __init__(self, seconds: float, on_timeout: Callable[[], None]) -> None:
        on_timeout()
        raise SystemExit


def test_who_hangs_in_a_cohort_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows who it is: all continue alone, each with the whole limit; then it is known."""
    spec = FRAGILE.replace("lr: 0.02", "lr: 0.004") + "time_limit: 600\n"
    here = Here(fresh(tmp_path, spec), block=0.001)
    monkeypatch.setattr(here.searcher, "room", lambda: 1)
    here.fill()
    for _ in range(2):  # the cohort, then the first of its members
        with monkeypatch.context() as hanging:
            hanging.setattr(trainable, "Watchdog", Overdue)
            with pytest.raises(SystemExit):
                here.round()
        here.die()
        here.fill()
    assert here.sizes == [4, 1, 1]
    (record,) = records(here.plan).values()
    assert record.reason.startswith("took longer than its time limit of 600 s")
    here.run_out()
    assert (here.plan.done, here.plan.failed) == (5, 1)


def test_a_lost_machine_splits_no_cohort(tmp_path: Path) -> None:
    here = Here(fresh(tmp_path, FRAGILE), block=0.001)
    here.fill()
    given = dict(here.working)
    assert here.sizes == [2, 2]
    here.die("its node has died")
    here.fill()
    assert here.sizes == [2, 2, 2]
    lost, again = given["t0"], here.working["t2"]
    assert [t.key for t in lost.cohort.trials] == [t.key for t in again.cohort.trials]


PRUNED = """\
name: cohorts
datasets: [blobs-1.7]
model: {name: mlp, widths: [16]}
methods: {standard: {lr: {loguniform: [0.0001, 0.1]}, weight_decay: 0}}
training: {epochs: 9, batch_size: 64}
search: {sampler: random, trials: 8}
scheduler: {name: asha, grace: 1}
confirm_seeds: 1
calibrators: []
cohort: 4
"""


def test_members_are_stopped_one_by_one_at_their_rungs(tmp_path: Path) -> None:
    here = swept(tmp_path, PRUNED)
    plan, (cell,) = here.plan, here.plan.cells.values()
    assert plan.done == plan.total == 9
    assert 0 < plan.pruned < 8
    outcomes = [
        plan.store.outcome("cohorts", cell.study_id, trial.key)
        for trial in plan.search_trials(cell)
    ]
    assert {outcome.company for outcome in outcomes if outcome} == {4}
    for outcome in outcomes:
        assert outcome is not None
        assert outcome.epochs == len(outcome.curve)
        assert outcome.epochs in ((1, 3) if outcome.status == "pruned" else (9,))
    # A new plan takes the same decisions over.
    assert fresh(tmp_path, PRUNED).finished


@pytest.mark.parametrize(
    ("rule", "search"),
    [
        ("median", "trials: 8"),  # trained one by one
        ("median", "trials: 12, batch: 6"),
        ("asha", "trials: 12, batch: 4"),
    ],
)
def test_cohorts_stop_the_same(rule: str, search: str, tmp_path: Path) -> None:
    text = PRUNED.replace("asha", rule).replace("epochs: 9", "epochs: 3")
    text = text.replace("trials: 8", search)
    stopped = []
    for cohort in ("cohort: 1", "cohort: 4"):
        plan = swept(tmp_path / cohort[-1], text.replace("cohort: 4", cohort)).plan
        (cell,) = plan.cells.values()
        trials = plan.search_trials(cell)
        outcomes = [plan.store.outcome("cohorts", cell.study_id, each.key) for each in trials]
        stopped.append([each is not None and each.status == "pruned" for each in outcomes])
        companies = {each.company for each in outcomes if each}
        assert (max(companies) > 1) == (cohort == "cohort: 4" and "batch" in search)
    assert stopped[0] == stopped[1]
    assert 0 < sum(stopped[0]) < len(stopped[0])
