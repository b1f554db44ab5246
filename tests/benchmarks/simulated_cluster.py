"""A cluster that trains nothing: recorded trainings on a virtual clock, everything else real.

The plan, the searches, the store, the recorder and the searcher that Ray Tune asks are the
engine's own. A worker copies the record of a real training into the store; a virtual clock
says when it is done. The driver does one thing after the other, as Tune's loop does: what it
really takes for a trial delays the virtual cluster.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from sweeps.engine.cell import Cells, PlannedTrial
from sweeps.engine.identity import TrialConfig
from sweeps.engine.plan import Plan
from sweeps.engine.trial import TrialRun
from sweeps.ray_backend.assignment import Terms
from sweeps.ray_backend.searcher import PlanSearcher
from sweeps.spec.schema import Evaluation
from sweeps.store import EvaluationRecord, Store, TrialRecord
from sweeps.tracking import Recorder
from tests.outcomes import changed

RATES = (0.1, 1.0, 10.0)
"""Recordings are made at these multiples of a method's default learning rate."""
FILING = 8
"""Threads that stand for the workers: they wait for the disk, and nobody waits for them."""
MOST_UNPUBLISHED = 500
LOOK_EVERY = 1000


class Recording(NamedTuple):
    """What a real training left: its record, its files, and its calibrators' evaluations."""

    lr: float
    record: TrialRecord
    files: dict[str, bytes]
    evaluations: dict[str, EvaluationRecord]


class Recordings:
    """Real trainings, made once: of every method a few searched and one confirmed."""

    def __init__(self, plan: Plan, scratch: Path) -> None:
        self._store = Store(scratch)
        self._calibrators, self._evaluation = plan.spec.calibrator_names, plan.spec.evaluation
        dataset = next(iter(plan.loaded.datasets))
        cells = Cells(plan.loaded)
        self._made: dict[tuple[str, str], list[Recording]] = {}
        for row in plan.spec.methods:
            default = cells.config(dataset, row, {}, 0, "search")
            rate = float(default.hyperparameters["lr"])
            for phase, factors in {"search": RATES, "confirm": (1.0,)}.items():
                self._made[default.method, phase] = [
                    self._record(_at(default, rate * factor, phase)) for factor in factors
                ]
        taken = [made.record.seconds for found in self._made.values() for made in found]
        self._mean = sum(taken) / len(taken)

    def nearest(self, config: TrialConfig) -> Recording:
        """The recording of the trial's method and phase with the nearest learning rate."""
        lr = float(config.hyperparameters["lr"])
        found = self._made[config.method, config.phase]
        return min(found, key=lambda made: max(made.lr, lr) / min(made.lr, lr))

    def relative_duration(self, config: TrialConfig) -> float:
        """How long the trial takes beside the mean of all recordings."""
        return self.nearest(config).record.seconds / self._mean

    def __len__(self) -> int:
        return sum(map(len, self._made.values()))

    def _record(self, config: TrialConfig) -> Recording:
        attempt = TrialRun(
            config, self._store, calibrators=self._calibrators, evaluation=self._evaluation
        )
        while not attempt.advance(60):
            continue
        record = self._store.record(attempt.key)
        if record is None or record.status != "done":
            raise RuntimeError(f"the recorded training failed: {record}")
        files = {name: self._store.file(record, name) or b"" for name in record.files}
        evaluations = self._store.evaluations(record, self._evaluation.tag)
        return Recording(float(config.hyperparameters["lr"]), record, files, evaluations)


def _at(config: TrialConfig, lr: float, phase: str) -> TrialConfig:
    hyperparameters = {**config.hyperparameters, "lr": lr}
    return config.model_copy(update={"hyperparameters": hyperparameters, "phase": phase})


class Worker:
    """Files what a trial would have come to; no part of it is the driver's work."""

    def __init__(self, recordings: Recordings, store: Store, evaluation: Evaluation) -> None:
        self._recordings, self._store, self._evaluation = recordings, store, evaluation
        self.filed: Counter[str] = Counter()

    def carry_out(self, trial: PlannedTrial) -> None:
        """The nearest recording as this trial's record, its NLL told apart by the key."""
        made = self._recordings.nearest(trial.config)
        apart = 1 + 0.1 * int(trial.key[:8], 16) / 16**8
        validation = made.record.validation
        outcome = changed(
            made.record,
            config=trial.config.model_dump(mode="json"),
            validation=validation | {"nll": validation["nll"] * apart},
            lineage=trial.key,
        )
        self.filed[trial.key] += self._store.file_record(trial.key, outcome, made.files)
        for name, evaluation in made.evaluations.items():
            self._store.write_evaluation(trial.key, self._evaluation.tag, name, evaluation)


@dataclass
class Taken:
    """What was timed; ``nothing`` if it turned out to be no trial."""

    nothing: bool = False


@dataclass
class Parts:
    """Seconds by part of the work, one number per trial: of CPU, and on the wall's clock."""

    cpu: dict[str, list[float]] = field(default_factory=dict)
    wall: dict[str, list[float]] = field(default_factory=dict)

    @contextmanager
    def timed(self, part: str) -> Iterator[Taken]:
        """Add what this thread does meanwhile as one number more."""
        taken = Taken()
        wall, cpu = time.perf_counter(), time.thread_time()
        yield taken
        if not taken.nothing:
            self.cpu.setdefault(part, []).append(time.thread_time() - cpu)
            self.wall.setdefault(part, []).append(time.perf_counter() - wall)

    def count(self, publisher: type) -> None:
        """Time every trial that the recorder's thread publishes."""
        publish = publisher.publish  # type: ignore[attr-defined]

        def timed(this: Any, trial: PlannedTrial) -> None:
            with self.timed("publish"):
                publish(this, trial)

        publisher.publish = timed  # type: ignore[attr-defined]


class Queue:
    """``slots`` GPUs and one driver that serves them one after the other, on a virtual clock."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.now = 0.0
        self.busy = 0.0
        self.most = 0
        self._ends: list[tuple[float, int, Any]] = []
        self._started = 0

    @property
    def running(self) -> int:
        """How many GPUs train, or have trained and wait for the driver."""
        return len(self._ends)

    def work(self, seconds: float) -> None:
        """The driver is at work for so long; nobody else is served meanwhile."""
        self.now += seconds

    def start(self, what: Any, seconds: float) -> None:
        """A GPU begins with something that takes so long."""
        self._started += 1
        heapq.heappush(self._ends, (self.now + seconds, self._started, what))
        self.most = max(self.most, len(self._ends))
        self.busy += seconds

    def next_end(self) -> Any:
        """What ends first; the driver turns to it as soon as it is free."""
        end, _, what = heapq.heappop(self._ends)
        self.now = max(self.now, end)
        return what

    @property
    def utilisation(self) -> float:
        """The share of all GPU seconds so far in which one trained."""
        return self.busy / (self.slots * self.now) if self.now else 0.0


def utilisation(costs: Sequence[float], durations: Sequence[float], slots: int) -> float:
    """How busy the GPUs are if the driver needs these seconds for the trials, one by one.

    Until the last trial has begun: the end of a sweep, where GPUs run out of trials, is the
    same with any driver.
    """
    queue = Queue(slots)
    for cost, seconds in zip(costs, durations, strict=True):
        if queue.running == slots:
            queue.next_end()
        queue.work(cost)
        queue.start(None, seconds)
    unfinished = sum(max(0.0, end - queue.now) for end, _, _ in queue._ends)
    return (queue.busy - unfinished) / (slots * queue.now)


@dataclass
class Run:
    """A simulated sweep: what it took, and how long each trial would have taken."""

    queue: Queue
    parts: Parts
    durations: list[float]
    memory: list[tuple[int, float]] = field(default_factory=list)
    """Trials done, and megabytes of the driver then."""


def simulate(
    plan: Plan,
    worker: Worker,
    recordings: Recordings,
    *,
    slots: int,
    mean_seconds: float,
    tune_seconds: float = 0.0,
    recorder: Recorder | None = None,
    parts: Parts | None = None,
    look: Callable[[], float] = lambda: 0.0,
) -> Run:
    """Run the plan to its end on ``slots`` virtual GPUs.

    Every trial takes the driver ``tune_seconds`` and the CPU time that suggesting and
    completing it really took. ``look`` is asked for the memory now and then.
    """
    run = Run(Queue(slots), parts or Parts(), [])
    queue, timed = run.queue, run.parts.timed
    terms = Terms.of(plan.spec, plan.store.root)
    searcher = PlanSearcher(plan, terms, lambda trial: None, room=lambda: slots)

    def fill(pool: ThreadPoolExecutor) -> None:
        while True:
            trial_id = str(len(run.durations))
            with timed("suggest") as taken:
                given = searcher.suggest(trial_id)
                if not isinstance(given, dict):
                    taken.nothing = True
                    return
            queue.work(run.parts.cpu["suggest"][-1] + tune_seconds)
            (trial,) = searcher._given[trial_id].trials.values()
            relative = recordings.relative_duration(trial.config)
            run.durations.append(relative)
            queue.start((trial_id, pool.submit(carried_out, trial)), relative * mean_seconds)

    def carried_out(trial: PlannedTrial) -> None:
        with timed("worker"):
            worker.carry_out(trial)

    with ThreadPoolExecutor(FILING) as pool:
        fill(pool)
        while queue.running:
            trial_id, filed = queue.next_end()
            filed.result()
            with timed("complete"):
                searcher.on_trial_complete(trial_id)
            queue.work(run.parts.cpu["complete"][-1])
            while recorder is not None and recorder.backlog > MOST_UNPUBLISHED:
                time.sleep(0.01)
            if plan.done % LOOK_EVERY == 0:
                run.memory.append((plan.done, look()))
            fill(pool)
    return run
