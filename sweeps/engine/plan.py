"""Which trial comes next, and the outcomes so far.

The plan has no state of its own: it is rebuilt from the spec and the store, from the persisted
suggestions of every study and their records.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calibration.hyperparameters import Value
from calibration.text import count
from sweeps.engine.cell import Cell, Cells, PlannedTrial
from sweeps.engine.cohorts import Cohorts, Shape
from sweeps.engine.outcomes import Confirmed, Outcomes
from sweeps.engine.searches import Searches
from sweeps.search.stopping import rung_values
from sweeps.spec import LoadedSpec
from sweeps.store import Store, TrialRecord, TrialSummary

OTHER_SHAPES = 4
"""The most suggestions that are made for each one that is wanted of a certain shape."""


@dataclass
class Hooks:
    """Callbacks for the events of a plan; none of them may raise."""

    asked: Callable[[Cell, int], None] = lambda cell, number: None
    told: Callable[[Cell, int], None] = lambda cell, number: None
    started: Callable[[PlannedTrial], None] = lambda trial: None
    done: Callable[[PlannedTrial], None] = lambda trial: None


@dataclass
class Options:
    """How a plan is carried out.

    ``persist``: suggestions are stored; ``retry_failed``: failed records are retired and
    their trials queued again; ``extra``: search trials beyond the spec's own budget.
    """

    persist: bool = True
    retry_failed: bool = False
    extra: int = 0


class Plan:
    """The order of a sweep's trials.

    ``next`` returns a trial to train, or None if nothing can start now; ``complete`` is called
    when a trial has its record. ``finished``: nothing is left.
    """

    def __init__(self, loaded: LoadedSpec, store: Store, options: Options | None = None) -> None:
        self.loaded = loaded
        self.spec = loaded.spec
        self.store = store
        self.options = options or Options()
        self.hooks = Hooks()
        self._outcomes = Outcomes(
            self.spec,
            store,
            writes=self.options.persist,
            retry_failed=self.options.retry_failed,
        )
        self._cohorts = Cohorts(loaded)
        self._trained: set[str] = set()
        self.reasons: Counter[str] = Counter()
        self.trials: dict[str, PlannedTrial] = {}
        self._replaying = False
        self._running: dict[str, list[PlannedTrial]] = {}
        self._deaths: defaultdict[str, float] = defaultdict(float)
        self._apart: set[str] = set()
        self._queue: deque[PlannedTrial] = deque()
        self._make = Cells(loaded)
        self.cells = {
            (dataset, row): self._make.cell(dataset, row, self.options.extra)
            for dataset in loaded.datasets
            for row in self.spec.methods
        }
        self._searches = Searches(
            self.spec,
            store,
            self._make,
            self.cells,
            persist=self.options.persist,
            asked=lambda cell, number: self.hooks.asked(cell, number),
        )

    def replay(self) -> None:
        """Adopt what the store already has; call it once, before anything else."""
        self._replaying = True
        if self.options.persist:
            self.store.clear_sweep(self.spec.name)
        for cell in self.cells.values():
            for known in self._searches.persisted(cell):
                for trial in known:
                    self._consider(trial)
        # Only now: a search bounded by time looks finished before all of it is replayed.
        self._replaying = False
        for cell in self.cells.values():
            self._confirm_when_searched(cell)

    @property
    def trained(self) -> int:
        """How many trials were assigned to workers for training, each counted once."""
        return len(self._trained)

    @property
    def total(self) -> int:
        """How many trials the sweep has in all."""
        return sum(cell.total for cell in self.cells.values())

    @property
    def done(self) -> int:
        """How many of them have a record."""
        return sum(cell.done for cell in self.cells.values())

    @property
    def failed(self) -> int:
        """How many of the records are failures."""
        return sum(cell.failed for cell in self.cells.values())

    @property
    def pruned(self) -> int:
        """How many trials were stopped early."""
        return sum(cell.pruned for cell in self.cells.values())

    @property
    def running(self) -> list[PlannedTrial]:
        """The trials that are being trained, in the order in which they were started."""
        return [waiting[0] for waiting in list(self._running.values())]

    @property
    def finished(self) -> bool:
        """Nothing is running, waiting or still to be suggested."""
        return (
            not self._running
            and not self._queue
            and all(cell.study.exhausted for cell in self.cells.values())
        )

    def next(self) -> PlannedTrial | None:
        """The next trial to train, now marked as running."""
        while True:
            trial = self._next_queued()
            if trial is None:
                cell = self._searches.next_cell()
                if cell is None:
                    return None
                asked = self._searches.ask_round(cell)
                waiting = [trial for trial in asked if self._is_to_be_trained(trial)]
                if not waiting:
                    continue
                trial, *others = waiting
                self._queue.extend(others)
            self._begin(trial)
            return trial

    def next_cohort(self, workers: int) -> list[PlannedTrial]:
        """The next trial, and others to be trained together with it, all now marked as running.

        Empty if nothing can start now. ``workers`` train at once: trials of one shape are divided
        evenly among them. This changes no suggestion: only those that no further result could
        change are made ahead of time.
        """
        first = self.next()
        if first is None:
            return []
        shape = self._shape(first)
        most = 1 if shape is None else self._cohorts.most(first, workers)
        if shape is None or most == 1:
            return [first]
        study = self.cells[first.cell].study
        waiting = [trial for trial in self._queue if self._shape(trial) == shape]
        running = sum(self._shape(trial) == shape for trial in self.running)
        share = min(most, -(-(running + len(waiting) + study.foreseen) // workers))
        waiting += self._ask_ahead(self.cells[first.cell], shape, share - 1 - len(waiting))
        cohort = [first]
        for trial in waiting:
            if len(cohort) >= share:
                break
            self._queue.remove(trial)
            if self._is_to_be_trained(trial):
                self._begin(trial)
                cohort.append(trial)
        return cohort

    def limit_cohorts(self, members: int) -> None:
        """Train at most this many together: a GPU holds no more."""
        self._cohorts.limit = members

    def keep_apart(self, key: str) -> None:
        """Let ``auto`` group no more trials of this one's shape: they are trained one by one."""
        if key in self._running:
            self._cohorts.keep_apart(self._running[key][0])

    def _shape(self, trial: PlannedTrial) -> Shape | None:
        """What trials that train together have in common; None for one that trains alone."""
        return None if trial.key in self._apart else self._cohorts.shape(trial)

    def _begin(self, trial: PlannedTrial) -> None:
        # A search trial that is not done has no record; a confirmed one may lack only evaluations.
        if trial.config.phase == "search" or self.store.record(trial.key) is None:
            self._trained.add(trial.key)
        self._outcomes.begin(trial)
        self._running[trial.key] = [trial]
        self.cells[trial.cell].running += 1
        self.hooks.started(trial)

    def report(self, trial: PlannedTrial, body: Mapping[str, Any]) -> bool:
        """Judge a trial that has reached a rung; True if it is stopped, which is then recorded."""
        study = self.cells[trial.cell].study
        stop = False
        reached = rung_values(body["curve"], study.rungs)
        for epoch, nll in reached.items():
            stop = study.report(trial.number, epoch, nll)
            if stop:  # later rungs were reached before this was decided
                break
        if stop:
            reason = (
                f"stopped by {self.spec.scheduler.name} after epoch {body['epochs']}: its best "
                f"validation NLL was {list(reached.values())[-1]:.4g}"
            )
            self._outcomes.stop(trial, body, reason)
        return stop

    def complete(self, key: str) -> None:
        """Take note that the trial has its record."""
        waiting = self._running.pop(key)
        self._outcomes.forget(key)
        self.cells[waiting[0].cell].running -= 1
        first, *others = waiting  # the others waited for the first one's record
        self._settle(first, self._outcomes.record(first))
        if self.spec.ensembles and first.config.phase == "confirm":
            self._outcomes.read_again(self.confirmed(*first.cell))
        for trial in others:
            self._consider(trial)

    def died(self, trial: PlannedTrial, cause: str, weight: float = 1.0) -> None:
        """The trial's process ended without a record: start the trial again, or give it up.

        ``weight`` is how much of a death it counts as: a lost machine is not the trial's fault.
        """
        self._deaths[trial.key] += weight
        deaths = self._deaths[trial.key]
        if self._outcomes.ended(trial) is None and int(deaths + 1e-9) > self.spec.retries:
            times = count(int(deaths), "time") if deaths == int(deaths) else "too often"
            self._outcomes.give_up(trial, f"its process died {times}; the last cause: {cause}")
            self.complete(trial.key)
        else:
            self._begin_again(trial)

    def split(self, cohort: Sequence[PlannedTrial]) -> None:
        """The process of a cohort died: its members continue alone, as any may have caused it.

        It does not count as a death of any of them.
        """
        for trial in reversed(cohort):  # each is put before those that wait
            self._apart.add(trial.key)
            self._begin_again(trial)

    def _begin_again(self, trial: PlannedTrial) -> None:
        if self._outcomes.ended(trial) is not None:
            self.complete(trial.key)
            return
        waiting = self._running.pop(trial.key)
        self.cells[trial.cell].running -= 1
        self._queue.extendleft(reversed(waiting))

    def summary(self, trial: PlannedTrial) -> TrialSummary | None:
        """The summary of a trial; None while it has not ended."""
        return self._outcomes.summary(trial)

    def result(self, trial: PlannedTrial) -> Confirmed | None:
        """The record and the evaluations of a confirm trial; None while it has not ended."""
        return self._outcomes.result(trial)

    def confirmed(self, dataset: str, row: str) -> list[PlannedTrial]:
        """The confirm trials of a cell, by seed; empty while its search is running."""
        cell = self.cells[dataset, row]
        chosen = self.chosen(cell)
        if chosen is None:
            return []
        return [self._make.confirm_trial(cell, chosen, i) for i in range(self.spec.confirm_seeds)]

    def chosen(self, cell: Cell) -> dict[str, Value] | None:
        """The hyperparameters to confirm; None while the search is running or if all failed."""
        if not cell.study.finished:
            return None
        if not cell.study.space.searched:
            return cell.study.space.fixed
        best = cell.study.best()
        return None if best is None else self.search_trial(cell, best).config.hyperparameters

    def search_trial(self, cell: Cell, number: int) -> PlannedTrial:
        """A cell's search trial ``number``."""
        return self.trials[f"{cell.study_id}/search/{number}"]

    def searched(self, trial: PlannedTrial) -> dict[str, Value]:
        """The hyperparameters of a search trial that were searched."""
        names = self.cells[trial.cell].study.space.searched
        return {name: trial.config.hyperparameters[name] for name in names}

    def search_trials(self, cell: Cell) -> list[PlannedTrial]:
        """A cell's search trials so far, by number."""
        return [self.search_trial(cell, number) for number in range(cell.study.asked)]

    def _next_queued(self) -> PlannedTrial | None:
        """The first queued trial that is neither trained nor in training by now."""
        while self._queue:
            trial = self._queue.popleft()
            if self._is_to_be_trained(trial):
                return trial
        return None

    def _ask_ahead(self, cell: Cell, shape: Shape, wanted: int) -> list[PlannedTrial]:
        """Ask for suggestions that no result would change, until enough have the shape.

        All of them are queued, those of other shapes too.
        """
        found: list[PlannedTrial] = []
        for _ in range(min(OTHER_SHAPES * wanted, cell.study.foreseen)):
            if len(found) >= wanted:
                break
            trial = self._searches.ask(cell)
            if self._is_to_be_trained(trial):
                self._queue.append(trial)
                found += [trial] if self._shape(trial) == shape else []
        return found

    def _consider(self, trial: PlannedTrial) -> None:
        """Settle a trial whose record exists, wait for one that runs, queue any other."""
        if self._is_to_be_trained(trial):
            self._queue.append(trial)

    def _is_to_be_trained(self, trial: PlannedTrial) -> bool:
        """False if it has a record, which is settled now, or is running, and is waited for."""
        self.trials[f"{trial.study_id}/{trial.config.phase}/{trial.number}"] = trial
        record = self._outcomes.ended(trial)
        if record is not None:
            self._settle(trial, record)
            return False
        if trial.key in self._running:
            self._running[trial.key].append(trial)
            return False
        return True

    def _settle(self, trial: PlannedTrial, record: TrialRecord | None) -> None:
        cell = self.cells[trial.cell]
        status = "failed" if record is None else record.status
        cell.done += 1
        cell.failed += status == "failed"
        cell.pruned += status == "pruned"
        if status == "failed":
            self.reasons[record.reason if record else "no record was stored"] += 1
        if record is not None:
            self._outcomes.keep(trial, record)
        if trial.config.phase == "search":
            self._searches.tell(cell, trial.number, record)
            self.hooks.told(cell, trial.number)
            self._confirm_when_searched(cell)
        if record is not None:
            self.hooks.done(trial)

    def _confirm_when_searched(self, cell: Cell) -> None:
        if not cell.study.finished or cell.confirming or self._replaying:
            return
        cell.confirming = True
        self._searches.keep_importance(cell)
        chosen = self.chosen(cell)
        if chosen is None:  # every search trial failed: nothing is left to confirm
            cell.hopeless = True
            return
        for repeat in range(self.spec.confirm_seeds):
            self._consider(self._make.confirm_trial(cell, chosen, repeat))
