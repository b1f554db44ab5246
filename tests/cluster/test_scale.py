"""The simulated cluster behind the figures of cluster/SCALE.md: that it is right."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.engine.plan import Hooks, Plan
from sweeps.ray_backend.assignment import ASSIGNMENT, Terms
from sweeps.ray_backend.searcher import PlanSearcher
from sweeps.spec import load_spec
from sweeps.store import Store
from tests.benchmarks.simulated_cluster import (
    Queue,
    Recordings,
    Run,
    Worker,
    simulate,
    utilisation,
)

NODES, GPUS = 5, 8
TRIALS, SEEDS = 48, 2
SPEC = f"""\
name: simulated
datasets: [blobs-1.3, blobs-1.7]
model: {{name: mlp, widths: [4]}}
methods: [standard, focal]
training: {{epochs: 2, batch_size: full}}
search: {{sampler: tpe, trials: {TRIALS}}}
confirm_seeds: {SEEDS}
calibrators: [temperature]
resources: {{cpu: 1, gpu: 1, device: cpu}}
"""


class Simulated:
    """One simulated sweep, and what was seen of it."""

    def __init__(self, directory: Path) -> None:
        (directory / "spec.yaml").write_text(SPEC)
        self.store = Store(directory / "runs")
        self.plan = Plan(load_spec(directory / "spec.yaml"), self.store)
        self.started: Counter[str] = Counter()
        self.plan.hooks = Hooks(started=lambda trial: self.started.update([trial.key]))
        self.plan.replay()
        recordings = Recordings(self.plan, directory / "made")
        self.worker = Worker(recordings, self.store, self.plan.spec.evaluation)
        self.run: Run = simulate(
            self.plan, self.worker, recordings, slots=NODES * GPUS, mean_seconds=60.0
        )


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    return Simulated(tmp_path_factory.mktemp("simulated"))


@pytest.mark.slow
def test_every_trial_runs_once_and_has_its_record(simulated: Simulated) -> None:
    total = 4 * (TRIALS + SEEDS)
    assert simulated.plan.finished
    assert simulated.plan.done == simulated.plan.total == total
    assert simulated.plan.failed == 0
    assert simulated.started == simulated.worker.filed
    assert set(simulated.started.values()) == {1}
    assert sorted(simulated.store.trial_keys()) == sorted(simulated.started)


@pytest.mark.slow
def test_all_studies_get_their_budget(simulated: Simulated) -> None:
    for cell in simulated.plan.cells.values():
        assert (cell.study.asked, cell.study.told, cell.done) == (TRIALS, TRIALS, TRIALS + SEEDS)


@pytest.mark.slow
def test_all_gpus_are_used_and_no_more(simulated: Simulated) -> None:
    assert simulated.run.queue.most == NODES * GPUS


@pytest.mark.slow
def test_the_clock_is_the_sum_of_what_the_trials_took(simulated: Simulated) -> None:
    run = simulated.run
    assert run.queue.busy == pytest.approx(60.0 * sum(run.durations))
    assert 0 < run.queue.utilisation < 1
    # Confirmed trials begin when their search is over: twice the longest is the least.
    assert run.queue.now > 60.0 * (max(run.durations[: NODES * GPUS]) + min(run.durations))


@pytest.mark.slow
def test_each_part_was_timed_once_a_trial(simulated: Simulated) -> None:
    counts = {part: len(seconds) for part, seconds in simulated.run.parts.cpu.items()}
    total = simulated.plan.total
    assert counts == {"suggest": total, "complete": total, "worker": total}


def test_a_trial_that_is_given_out_is_looked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On an object store each look is a request that the driver's loop waits for."""
    (tmp_path / "spec.yaml").write_text(SPEC)
    store = Store(tmp_path / "runs")
    plan = Plan(load_spec(tmp_path / "spec.yaml"), store)
    plan.replay()
    looks: list[Any] = []
    read = store._files.read
    monkeypatch.setattr(store._files, "read", lambda name: looks.append(name) or read(name))
    searcher = PlanSearcher(plan, Terms.of(plan.spec, store.root), lambda trial: None)
    given_out = searcher.suggest("1")
    (member,) = given_out[ASSIGNMENT].members
    assert looks == [f"records/{member.trial.key()}/record.json"]
    assert member.rungs == ()


@given(
    slots=st.integers(1, 40),
    cost=st.floats(0.001, 1.0),
    duration=st.floats(0.001, 100.0),
    rounds=st.integers(20, 60),
)
def test_utilisation_is_that_of_a_single_server(
    slots: int, cost: float, duration: float, rounds: int
) -> None:
    """Equal trials: the driver serves one every ``cost``, a GPU needs one every cost + duration."""
    count = slots * rounds
    found = utilisation([cost] * count, [duration] * count, slots)
    expected = min(1 / cost, slots / (cost + duration)) * duration / slots
    assert found == pytest.approx(expected, rel=3 / rounds)


def test_what_ends_first_is_served_first_and_waits_for_the_driver() -> None:
    queue = Queue(2)
    queue.start("long", 10.0)
    queue.start("short", 1.0)
    assert queue.next_end() == "short"
    queue.work(20.0)
    assert queue.now == 21.0
    assert queue.next_end() == "long"
    assert queue.now == 21.0
    assert queue.utilisation == pytest.approx(11.0 / 42.0)
