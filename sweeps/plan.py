"""Which trial comes next, in which order, and what has come of it.

The plan holds no truth of its own: it is rebuilt from the spec and the store by asking
every study for its persisted suggestions and the store for their records.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from calibration.hyperparameters import Value
from calibration.methods import make_method
from sweeps.schema import Objective, SearchConfig
from sweeps.search import Result, Study
from sweeps.space import Space
from sweeps.spec import LoadedSpec
from sweeps.store import Store, file_name
from sweeps.trial import FAILED, TrialConfig, environment, missing_maps, rung_values

Phase = Literal["search", "confirm"]


@dataclass(frozen=True)
class Entry:
    """One trial's place in the sweep: ``number`` counts within its cell and phase."""

    key: str
    config: TrialConfig
    number: int
    row: str
    study_id: str

    @property
    def cell(self) -> tuple[str, str]:
        """The names of the dataset and of the spec's row."""
        return self.config.dataset_name, self.row


@dataclass
class Cell:
    """One row of the spec on one dataset: its search, and the confirmation of what it found."""

    dataset: str
    row: str
    study: Study
    study_id: str
    seeds: int
    done: int = 0
    failed: int = 0
    pruned: int = 0
    running: int = 0
    confirming: bool = False
    hopeless: bool = False

    @property
    def name(self) -> str:
        """What the cell's study is called."""
        return f"{self.dataset}/{self.row}"

    @property
    def total(self) -> int:
        """How many trials it will have, as far as can be told."""
        budget = self.study.budget
        searched = self.study.asked if budget is None else budget
        return self.done if self.hopeless else searched + self.seeds


@dataclass
class Hooks:
    """Who hears of what happens; none of them may raise."""

    asked: Callable[[Cell, int], None] = lambda cell, number: None
    told: Callable[[Cell, int], None] = lambda cell, number: None
    started: Callable[[Entry], None] = lambda entry: None
    done: Callable[[Entry], None] = lambda entry: None


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
        self.trained = 0
        self.reasons: Counter[str] = Counter()
        self.entries: dict[str, Entry] = {}
        self._replaying = False
        self._running: dict[str, list[Entry]] = {}
        self._deaths: Counter[str] = Counter()
        self._queue: deque[Entry] = deque()
        self._training = {row: self.spec.row_training(row) for row in self.spec.methods}
        self.cells = {
            (dataset, row): self._cell(dataset, row)
            for dataset in loaded.datasets
            for row in self.spec.methods
        }
        self._turns = deque(self.cells.values())

    def replay(self) -> None:
        """Take over what the store already has; call once, before anything else."""
        self._replaying = True
        for cell in self.cells.values():
            suggestions = self.store.suggestions(self.spec.name, cell.study_id)
            for number in range(max(suggestions, default=-1) + 1):
                if cell.study.budget is not None and number >= cell.study.budget:
                    break  # of a larger budget than this spec's
                if number in suggestions:
                    hyperparameters = suggestions[number]["hyperparameters"]
                    cell.study.replay(number, hyperparameters)
                    self._consider(self._search_entry(cell, number, hyperparameters))
                else:  # its file was damaged
                    self._consider(self._ask(cell))
            self._confirm_when_searched(cell)
        self._replaying = False

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
    def finished(self) -> bool:
        """Nothing is running, waiting or still to be suggested."""
        return (
            not self._running
            and not self._queue
            and all(cell.study.exhausted for cell in self.cells.values())
        )

    def next(self) -> Entry | None:
        """The next trial to train, now marked as running."""
        while True:
            entry = self._next_queued()
            if entry is not None:
                self.trained += self.store.record(entry.key) is None
                self._running[entry.key] = [entry]
                self.cells[entry.cell].running += 1
                self.hooks.started(entry)
                return entry
            cell = self._next_to_search()
            if cell is None:
                return None
            self._consider(self._ask(cell))

    def report(self, entry: Entry, body: Mapping[str, Any]) -> bool:
        """A trial has reached a rung; True when it is to be stopped, and is then filed so."""
        study = self.cells[entry.cell].study
        stop = False
        reached = rung_values(body["curve"], study.rungs)
        for epoch, nll in reached.items():
            stop = study.report(entry.number, epoch, nll)
        if stop:
            reason = (
                f"stopped by {self.spec.scheduler.name} after epoch {body['epochs']}: its best "
                f"validation NLL was {list(reached.values())[-1]:.4g}"
            )
            record = {**body, "status": "pruned", "reason": reason}
            self.store.file_stopped(self.spec.name, entry.study_id, entry.key, record)
        return stop

    def complete(self, key: str) -> None:
        """Take note that the trial's record has landed."""
        waiting = self._running.pop(key)
        self.cells[waiting[0].cell].running -= 1
        first, *others = waiting  # the others waited for the first one's record
        self._settle(first)
        for entry in others:
            self._consider(entry)

    def died(self, entry: Entry, cause: str) -> None:
        """The trial's process ended without a record: begin again, or give the trial up."""
        self._deaths[entry.key] += 1
        deaths = self._deaths[entry.key]
        if self._is_done(entry):
            self.complete(entry.key)
        elif deaths > self.spec.retries:
            self._give_up(entry, f"its process died {deaths} times, the last time so: {cause}")
            self.complete(entry.key)
        else:
            waiting = self._running.pop(entry.key)
            self.cells[entry.cell].running -= 1
            self._queue.extendleft(reversed(waiting))

    def _give_up(self, entry: Entry, reason: str) -> None:
        if self._outcome(entry) is None:
            record = {
                "config": entry.config.model_dump(mode="json"),
                "environment": environment(),
                "status": "failed",
                "reason": reason,
            }
            self.store.file_record(entry.key, (self.store.live(entry.key) or {}) | record)
            return
        tag = self.spec.evaluation.tag
        for name in missing_maps(self.store, entry.key, self.spec.maps, self.spec.evaluation):
            self.store.write_map(entry.key, tag, name, {FAILED: reason})

    def confirmed(self, dataset: str, row: str) -> list[Entry]:
        """The confirm trials of a cell, by seed; empty while its search goes on."""
        cell = self.cells[dataset, row]
        chosen = self.chosen(cell)
        if chosen is None:
            return []
        return [self._confirm_entry(cell, chosen, i) for i in range(self.spec.confirm_seeds)]

    def chosen(self, cell: Cell) -> dict[str, Value] | None:
        """The hyperparameters to confirm; None while the search goes on or if all of it failed."""
        if not cell.study.finished:
            return None
        if not cell.study.space.searched:
            return cell.study.space.fixed
        best = cell.study.best()
        return None if best is None else self.search_entry(cell, best).config.hyperparameters

    def search_entry(self, cell: Cell, number: int) -> Entry:
        """A cell's search trial ``number``."""
        return self.entries[f"{cell.study_id}/search/{number}"]

    def hyperparameters(self, cell: Cell, number: int) -> dict[str, Value]:
        """The searched knobs of a cell's trial ``number``."""
        chosen = self.search_entry(cell, number).config.hyperparameters
        return {name: chosen[name] for name in cell.study.space.searched}

    def _next_queued(self) -> Entry | None:
        """The first queued trial that nobody has trained or is training meanwhile."""
        while self._queue:
            entry = self._queue.popleft()
            if self._is_done(entry):
                self._settle(entry)
            elif entry.key in self._running:
                self._running[entry.key].append(entry)
            else:
                return entry
        return None

    def _next_to_search(self) -> Cell | None:
        for _ in range(len(self._turns)):
            self._turns.rotate(-1)
            if not self._turns[0].study.exhausted:
                return self._turns[0]
        return None

    def _ask(self, cell: Cell) -> Entry:
        number, hyperparameters = cell.study.ask()
        entry = self._search_entry(cell, number, hyperparameters)
        if self.options.persist:
            suggestion = {"number": number, "hyperparameters": hyperparameters, "key": entry.key}
            self.store.write_suggestion(self.spec.name, cell.study_id, number, suggestion)
        self.hooks.asked(cell, number)
        return entry

    def _consider(self, entry: Entry) -> None:
        """Settle a trial whose record exists, wait for one that runs, queue any other."""
        self.entries[f"{entry.study_id}/{entry.config.phase}/{entry.number}"] = entry
        if self._is_done(entry):
            self._settle(entry)
        elif entry.key in self._running:
            self._running[entry.key].append(entry)
        else:
            self._queue.append(entry)

    def _settle(self, entry: Entry) -> None:
        cell = self.cells[entry.cell]
        record = self._outcome(entry)
        status = "failed" if record is None else record["status"]
        cell.done += 1
        cell.failed += status == "failed"
        cell.pruned += status == "pruned"
        if status == "failed":
            self.reasons[record["reason"] if record else "no record was filed"] += 1
        if entry.config.phase == "search":
            self._tell(cell, entry.number, record)
            self.hooks.told(cell, entry.number)
            self._confirm_when_searched(cell)
        if record is not None:
            self.hooks.done(entry)

    def _tell(self, cell: Cell, number: int, record: dict[str, Any] | None) -> None:
        curve = record.get("curve", []) if record else []
        for epoch, nll in rung_values(curve, cell.study.rungs).items():
            cell.study.report(number, epoch, nll)
        if record is None or record["status"] == "failed":
            # Never for nothing: a search bounded by time alone must end if everything fails.
            seconds = max(1.0, float(record.get("seconds", 0.0)) if record else 0.0)
            cell.study.tell(number, Result((), float("nan"), seconds, "failed"))
            return
        measured = {name: float(value) for name, value in record["validation"].items()}
        values = objective_values(measured, self.spec.search.objective)
        nll = measured.get("nll", float("nan"))
        cell.study.tell(number, Result(values, nll, float(record["seconds"]), record["status"]))

    def _confirm_when_searched(self, cell: Cell) -> None:
        if not cell.study.finished or cell.confirming:
            return
        cell.confirming = True
        chosen = self.chosen(cell)
        if chosen is None:  # every search trial failed: nothing is left to confirm
            cell.hopeless = True
            return
        for repeat in range(self.spec.confirm_seeds):
            self._consider(self._confirm_entry(cell, chosen, repeat))

    def _outcome(self, entry: Entry) -> dict[str, Any] | None:
        return self.store.outcome(self.spec.name, entry.study_id, entry.key)

    def _is_done(self, entry: Entry) -> bool:
        record = self._outcome(entry)
        if record is None:
            return False
        if self._replaying and self.options.persist:
            if record["status"] == "failed" and self.options.retry_failed:
                self.store.retire(entry.key)
                return False
            # Once, where a sweep is taken up: a file that has changed since is not taken over.
            if record["status"] == "done" and not self.store.intact(entry.key):
                return False
        if record["status"] != "done" or entry.config.phase == "search":
            return True
        return not missing_maps(self.store, entry.key, self.spec.maps, self.spec.evaluation)

    def _cell(self, dataset: str, row: str) -> Cell:
        space = self.spec.space(row)
        search = self.spec.search
        study = Study(
            space,
            search,
            self.spec.seed,
            f"{dataset}/{row}",
            scheduler=self.spec.scheduler,
            epochs=self._training[row].epochs,
            extra=self.options.extra,
        )
        template = self._config(dataset, row, {}, self.spec.seed, "search")
        identity = {
            "trial": template.model_dump(mode="json"),
            "fixed": space.fixed,
            "searched": {name: repr(domain) for name, domain in space.searched.items()},
            "search": _search_identity(search),
            **_further_identity(space),
        }
        if self.spec.scheduler.name != "none":
            identity["scheduler"] = self.spec.scheduler.model_dump()
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]
        study_id = f"{file_name(dataset)}/{file_name(row)}/{digest}"
        return Cell(dataset, row, study, study_id, self.spec.confirm_seeds)

    def _search_entry(self, cell: Cell, number: int, hyperparameters: dict[str, Any]) -> Entry:
        config = self._config(cell.dataset, cell.row, hyperparameters, self.spec.seed, "search")
        return Entry(config.key(), config, number, cell.row, cell.study_id)

    def _confirm_entry(self, cell: Cell, chosen: dict[str, Value], repeat: int) -> Entry:
        seed = self.spec.seed + 1 + repeat
        config = self._config(cell.dataset, cell.row, chosen, seed, "confirm")
        return Entry(config.key(), config, repeat, cell.row, cell.study_id)

    def _config(
        self,
        dataset: str,
        row: str,
        hyperparameters: dict[str, Value],
        seed: int,
        phase: Phase,
    ) -> TrialConfig:
        index = list(self.loaded.datasets).index(dataset)
        method = self.spec.methods[row].method
        # Defaults are written out: a record says what was used, and keys change with it.
        complete = make_method(method, hyperparameters).hyperparameters.model_dump()
        return TrialConfig(
            dataset=self.spec.datasets[index],
            dataset_name=dataset,
            fingerprint=self.loaded.datasets[dataset].fingerprint,
            protocol=self.spec.protocol,
            model=self.spec.model,
            method=method,
            hyperparameters=complete,
            training=self._training[row],
            seed=seed,
            phase=phase,
        )


def objective_values(
    measured: Mapping[str, float], objectives: Sequence[Objective]
) -> tuple[float, ...]:
    """What a trial's validation metrics say to each of the objectives."""
    measured = {"accuracy": 1 - measured.get("error", float("nan")), **measured}
    return tuple(measured.get(objective.metric, float("nan")) for objective in objectives)


def _search_identity(search: SearchConfig) -> dict[str, Any]:
    """What of the search makes it another one: not its budget, which may be raised."""
    objectives = search.objective
    single = len(objectives) == 1 and objectives[0].direction == "minimize"
    identity: dict[str, Any] = {
        "sampler": search.sampler,
        "resolution": search.resolution,
        "objective": objectives[0].metric if single else [o.model_dump() for o in objectives],
    }
    return identity if search.seed is None else identity | {"seed": search.seed}


def _further_identity(space: Space) -> dict[str, Any]:
    further = {"conditions": space.conditions, "grid": space.grid, "first": space.first}
    return {name: repr(value) for name, value in further.items() if value}
