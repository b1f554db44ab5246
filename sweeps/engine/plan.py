"""Which trial comes next, in which order, and what has come of it.

The plan holds no truth of its own: it is rebuilt from the spec and the store by asking
every study for its persisted suggestions and the store for their records.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import ValidationError

from calibration.hyperparameters import Value
from sweeps.engine.cell import Cell, Cells, PlannedTrial, objective_values
from sweeps.engine.ensembles import EnsembleEvaluation
from sweeps.engine.environment import environment
from sweeps.engine.evaluation import current_version, missing_evaluations
from sweeps.search import Result
from sweeps.search.stopping import rung_values
from sweeps.spec import LoadedSpec
from sweeps.store import EvaluationRecord, Store, TrialOutcome, TrialRecord, TrialSummary


@dataclass
class Hooks:
    """Who hears of what happens; none of them may raise."""

    asked: Callable[[Cell, int], None] = lambda cell, number: None
    told: Callable[[Cell, int], None] = lambda cell, number: None
    started: Callable[[PlannedTrial], None] = lambda trial: None
    done: Callable[[PlannedTrial], None] = lambda trial: None


class Confirmed(NamedTuple):
    """What has come of a confirm trial."""

    record: TrialRecord
    evaluations: Mapping[str, EvaluationRecord]


@dataclass
class Options:
    """How a plan goes about what the spec says.

    ``persist``: suggestions are filed; ``retry_failed``: failed records are retired and
    their trials queued again; ``extra``: search trials beyond the spec's own budget.
    """

    persist: bool = True
    retry_failed: bool = False
    extra: int = 0


class Plan:
    """The order of a sweep's trials.

    ``next`` gives a trial to train, or None when nothing can start now; ``complete`` takes
    note of a record that has landed. ``finished`` says that nothing is left.
    """

    def __init__(self, loaded: LoadedSpec, store: Store, options: Options | None = None) -> None:
        self.loaded = loaded
        self.spec = loaded.spec
        self.store = store
        self.options = options or Options()
        self.hooks = Hooks()
        self._trained: set[str] = set()
        self._summaries: dict[tuple[str, str], TrialSummary] = {}
        self._confirmed: dict[str, Confirmed] = {}
        self.reasons: Counter[str] = Counter()
        self.trials: dict[str, PlannedTrial] = {}
        self._replaying = False
        self._seen: set[str] = set()
        self._checked: set[str] = set()
        self._running: dict[str, list[PlannedTrial]] = {}
        self._deaths: defaultdict[str, float] = defaultdict(float)
        self._queue: deque[PlannedTrial] = deque()
        self._make = Cells(loaded)
        self.cells = {
            (dataset, row): self._make.cell(dataset, row, self.options.extra)
            for dataset in loaded.datasets
            for row in self.spec.methods
        }
        self._turns = deque(self.cells.values())

    def replay(self) -> None:
        """Take over what the store already has; call once, before anything else."""
        self._replaying = True
        if self.options.persist:
            self.store.clear_sweep(self.spec.name)
        for cell in self.cells.values():
            suggestions = self.store.suggestions(self.spec.name, cell.study_id)
            for number in range(max(suggestions, default=-1) + 1):
                if cell.study.budget is not None and number >= cell.study.budget:
                    break  # of a larger budget than this spec's
                trial = self._suggested(cell, number, suggestions.get(number))
                self._consider(trial or self._ask(cell))
        # Only now: a search bounded by time looks finished before all of it is taken over.
        self._replaying = False
        for cell in self.cells.values():
            self._confirm_when_searched(cell)

    def _suggested(
        self, cell: Cell, number: int, suggestion: Mapping[str, Any] | None
    ) -> PlannedTrial | None:
        """The trial of a persisted suggestion; None if it was damaged or cannot be the study's."""
        if suggestion is None:
            return None
        try:
            hyperparameters = suggestion["hyperparameters"]
            cell.study.replay(number, hyperparameters)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = f"its study cannot have made it ({error})"
            self.store.reject_suggestion(self.spec.name, cell.study_id, number, reason)
            return None
        return self._make.search_trial(cell, number, hyperparameters)

    @property
    def trained(self) -> int:
        """How many trials were given out to be trained, each counted once."""
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
        """How many of the records tell of a failure."""
        return sum(cell.failed for cell in self.cells.values())

    @property
    def pruned(self) -> int:
        """How many trials were stopped early."""
        return sum(cell.pruned for cell in self.cells.values())

    @property
    def running(self) -> list[PlannedTrial]:
        """The trials that are being trained, in the order in which they were given out."""
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
                cell = self._next_to_search()
                if cell is None:
                    return None
                trial = self._ask(cell)
                if not self._is_to_be_trained(trial):
                    continue
            # A search trial that is not done has no record; a confirmed one may lack calibrators
            # only.
            if trial.config.phase == "search" or self.store.record(trial.key) is None:
                self._trained.add(trial.key)
            self._seen.add(trial.key)
            self._running[trial.key] = [trial]
            self.cells[trial.cell].running += 1
            self.hooks.started(trial)
            return trial

    def report(self, trial: PlannedTrial, body: Mapping[str, Any]) -> bool:
        """A trial has reached a rung; True when it is to be stopped, and is then filed so."""
        study = self.cells[trial.cell].study
        stop = False
        reached = rung_values(body["curve"], study.rungs)
        for epoch, nll in reached.items():
            stop = study.report(trial.number, epoch, nll)
            if stop:  # what it did at later rungs it did while the question was open
                break
        if stop:
            reason = (
                f"stopped by {self.spec.scheduler.name} after epoch {body['epochs']}: its best "
                f"validation NLL was {list(reached.values())[-1]:.4g}"
            )
            outcome = TrialOutcome(**body, status="pruned", reason=reason)
            self.store.file_stopped(self.spec.name, trial.study_id, trial.key, outcome)
        return stop

    def complete(self, key: str) -> None:
        """Take note that the trial's record has landed."""
        waiting = self._running.pop(key)
        self._confirmed.pop(key, None)  # it may have been evaluated since
        self.cells[waiting[0].cell].running -= 1
        first, *others = waiting  # the others waited for the first one's record
        self._settle(first, self._outcome(first))
        self._read_ensemble(first)
        for trial in others:
            self._consider(trial)

    def _read_ensemble(self, trial: PlannedTrial) -> None:
        """Read again what lies with a cell's other trials: the last to end evaluates them all."""
        if not self.spec.ensembles or trial.config.phase != "confirm":
            return
        for member in self.confirmed(*trial.cell):
            known = self._confirmed.get(member.key)
            if known is not None:
                found = self._evaluations(known.record)
                self._confirmed[member.key] = Confirmed(known.record, found)

    def died(self, trial: PlannedTrial, cause: str, weight: float = 1.0) -> None:
        """The trial's process ended without a record: begin again, or give the trial up.

        ``weight`` is how much of a death it counts: a lost machine is not the trial's doing.
        """
        self._deaths[trial.key] += weight
        deaths = self._deaths[trial.key]
        if self._ended(trial) is not None:
            self.complete(trial.key)
        elif int(deaths + 1e-9) > self.spec.retries:
            times = f"{deaths:g} times" if deaths == int(deaths) else "too often"
            self._give_up(trial, f"its process died {times}, the last time so: {cause}")
            self.complete(trial.key)
        else:
            waiting = self._running.pop(trial.key)
            self.cells[trial.cell].running -= 1
            self._queue.extendleft(reversed(waiting))

    def _give_up(self, trial: PlannedTrial, reason: str) -> None:
        record = self._outcome(trial)
        if record is None:
            about: dict[str, Any] = {
                "config": trial.config.model_dump(mode="json"),
                "environment": environment(),
                "status": "failed",
                "reason": reason,
            }
            live = self.store.live(trial.key) or {}
            reached = {n: live[n] for n in ("lineage", "times", "curve") if n in live}
            try:
                outcome = TrialOutcome(**about, **reached)
            except ValidationError:  # a live curve that somebody edited
                outcome = TrialOutcome(**about)
            self.store.file_record(trial.key, outcome)
            return
        tag = self.spec.evaluation.tag
        there = self.store.evaluations(record, tag)
        for name in missing_evaluations(there, self.spec.calibrator_names):
            found = EvaluationRecord(failed=reason, version=current_version(name), made=time.time())
            self.store.write_evaluation(trial.key, tag, name, found)

    def summary(self, trial: PlannedTrial) -> TrialSummary | None:
        """What has come of a trial; None while it has not ended."""
        known = self._confirmed.get(trial.key)  # perhaps not evaluated yet
        return known.record.summary if known else self._summaries.get((trial.study_id, trial.key))

    def result(self, trial: PlannedTrial) -> Confirmed | None:
        """The record and the evaluations of a confirm trial; None while it has not ended."""
        return self._confirmed.get(trial.key)

    def confirmed(self, dataset: str, row: str) -> list[PlannedTrial]:
        """The confirm trials of a cell, by seed; empty while its search goes on."""
        cell = self.cells[dataset, row]
        chosen = self.chosen(cell)
        if chosen is None:
            return []
        return [self._make.confirm_trial(cell, chosen, i) for i in range(self.spec.confirm_seeds)]

    def chosen(self, cell: Cell) -> dict[str, Value] | None:
        """The hyperparameters to confirm; None while the search goes on or if all of it failed."""
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
        """The first queued trial that nobody has trained or is training meanwhile."""
        while self._queue:
            trial = self._queue.popleft()
            if self._is_to_be_trained(trial):
                return trial
        return None

    def _next_to_search(self) -> Cell | None:
        for _ in range(len(self._turns)):
            self._turns.rotate(-1)
            if not self._turns[0].study.exhausted:
                return self._turns[0]
        return None

    def _ask(self, cell: Cell) -> PlannedTrial:
        number, hyperparameters = cell.study.ask()
        trial = self._make.search_trial(cell, number, hyperparameters)
        if self.options.persist:
            suggestion = {"number": number, "hyperparameters": hyperparameters, "key": trial.key}
            self.store.write_suggestion(self.spec.name, cell.study_id, number, suggestion)
        self.hooks.asked(cell, number)
        return trial

    def _consider(self, trial: PlannedTrial) -> None:
        """Settle a trial whose record exists, wait for one that runs, queue any other."""
        if self._is_to_be_trained(trial):
            self._queue.append(trial)

    def _is_to_be_trained(self, trial: PlannedTrial) -> bool:
        """False if its record exists, and it is settled, or if it runs, and is waited for."""
        self.trials[f"{trial.study_id}/{trial.config.phase}/{trial.number}"] = trial
        record = self._ended(trial)
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
            self.reasons[record.reason if record else "no record was filed"] += 1
        if record is not None:
            self._summaries[trial.study_id, trial.key] = record.summary
        if trial.config.phase == "search":
            self._tell(cell, trial.number, record)
            self.hooks.told(cell, trial.number)
            self._confirm_when_searched(cell)
        elif record is not None and trial.key not in self._confirmed:
            self._confirmed[trial.key] = Confirmed(record, self._evaluations(record))
        if record is not None:
            self.hooks.done(trial)

    def _tell(self, cell: Cell, number: int, record: TrialRecord | None) -> None:
        for epoch, nll in rung_values(record.curve if record else (), cell.study.rungs).items():
            cell.study.note(number, epoch, nll)
        if record is None or record.status == "failed":
            # Never for nothing: a search bounded by time alone must end if everything fails.
            seconds = max(1.0, record.seconds if record else 0.0)
            cell.study.tell(number, Result((), float("nan"), seconds, "failed"))
            return
        values = objective_values(record.validation, self.spec.search.objective)
        nll = record.validation.get("nll", float("nan"))
        cell.study.tell(number, Result(values, nll, record.seconds, record.status))

    def _confirm_when_searched(self, cell: Cell) -> None:
        if not cell.study.finished or cell.confirming or self._replaying:
            return
        cell.confirming = True
        self._keep_importance(cell)
        chosen = self.chosen(cell)
        if chosen is None:  # every search trial failed: nothing is left to confirm
            cell.hopeless = True
            return
        for repeat in range(self.spec.confirm_seeds):
            self._consider(self._make.confirm_trial(cell, chosen, repeat))

    def _keep_importance(self, cell: Cell) -> None:
        """Keep which hyperparameters mattered in an ended search: reports make no study."""
        study, sweep = cell.study, self.spec.name
        if not self.options.persist or not study.space.searched:
            return
        finished = sum(study.values(number) is not None for number in range(study.asked))
        known = self.store.importance(sweep, cell.study_id)
        if known is None or known.get("trials") != finished:
            found = {"trials": finished, "shares": study.importance()}
            self.store.write_importance(sweep, cell.study_id, found)

    def _outcome(self, trial: PlannedTrial) -> TrialRecord | None:
        if self.spec.scheduler.name == "none":  # nothing is stopped: one request less
            return self.store.record(trial.key)
        return self.store.outcome(self.spec.name, trial.study_id, trial.key)

    def _evaluations(self, record: TrialRecord) -> dict[str, EvaluationRecord]:
        if record.status != "done":
            return {}
        return self.store.evaluations(record, self.spec.evaluation.tag)

    def _ended(self, trial: PlannedTrial) -> TrialRecord | None:
        """The trial's record, if nothing of the trial is left to do."""
        record = self._outcome(trial)
        if trial.key not in self._checked:  # where a trial is first met
            self._checked.add(trial.key)
            if self.options.persist:
                self.store.clear_trial(trial.key, record)
        if record is None:
            return None
        first_seen = self.options.persist and trial.key not in self._seen
        self._seen.add(trial.key)
        again = first_seen and self.options.retry_failed
        if again and record.status == "failed":
            self.store.retire(record)
            return None
        # Once, where a sweep is taken up: a file that has changed since is not taken over.
        if first_seen and record.status == "done" and not self.store.intact(record):
            return None
        if record.status != "done" or trial.config.phase == "search":
            return record
        there = self._evaluations(record)
        self._confirmed[trial.key] = Confirmed(record, there)
        # Who only reads takes what other versions have made, and says so.
        if missing_evaluations(
            there, self.spec.calibrator_names, failed=again, outdated=self.options.persist
        ):
            return None
        return None if self._lacks_ensemble(trial, failed=again) else record

    def _lacks_ensemble(self, trial: PlannedTrial, *, failed: bool) -> bool:
        """Whether a worker must still evaluate its cell's ensemble; asked of the last seed."""
        seeds = self.spec.ensemble_seeds
        if not self.options.persist or not seeds or trial.config.seed != seeds[-1]:
            return False
        pool = EnsembleEvaluation(trial.config, seeds, self.store, self.spec.evaluation)
        return bool(pool.missing(self.spec.calibrator_names, failed=failed)[1])
