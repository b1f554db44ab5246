"""Which trial comes next, in which order, and what has come of it.

The plan holds no truth of its own: it is rebuilt from the spec and the store by asking
every study for its persisted suggestions and the store for their records.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from calibration.hyperparameters import Value
from calibration.methods import make_method
from sweeps.search import Study
from sweeps.spec import LoadedSpec
from sweeps.store import Store, file_name
from sweeps.trial import TrialConfig, missing_maps

Phase = Literal["search", "confirm"]


@dataclass(frozen=True)
class Entry:
    """One trial's place in the sweep: ``number`` counts within its cell and phase."""

    key: str
    config: TrialConfig
    number: int
    row: str

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
    total: int
    done: int = 0
    failed: int = 0
    running: int = 0
    confirming: bool = False

    @property
    def best(self) -> tuple[int, float] | None:
        """Number and validation objective of the best trial so far."""
        return self.study.best()


class Plan:
    """The order of a sweep's trials.

    ``next`` gives a trial to train, or None when nothing can start now; ``complete`` takes
    note of a record that has landed. ``finished`` says that nothing is left.
    """

    def __init__(self, loaded: LoadedSpec, store: Store, *, persist: bool = True) -> None:
        self.loaded = loaded
        self.spec = loaded.spec
        self.store = store
        self.persist = persist
        self.trained = 0
        self.entries: dict[str, Entry] = {}
        self.on_done: Callable[[Entry], None] = lambda entry: None
        self._running: dict[str, list[Entry]] = {}
        self._queue: deque[Entry] = deque()
        self.cells = {
            (dataset, row): self._cell(dataset, row)
            for dataset in loaded.datasets
            for row in self.spec.methods
        }
        self._turns = deque(self.cells.values())

    def replay(self) -> None:
        """Take over what the store already has; call once, before anything else."""
        for cell in self.cells.values():
            for suggestion in self.store.suggestions(self.spec.name, cell.study_id):
                if cell.study.exhausted:
                    break
                cell.study.replay(suggestion["hyperparameters"])
                self._consider(self._search_entry(cell, suggestion["number"], suggestion))
            self._confirm_when_searched(cell)

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
                return entry
            cell = self._next_to_search()
            if cell is None:
                return None
            number, hyperparameters = cell.study.ask()
            entry = self._search_entry(cell, number, {"hyperparameters": hyperparameters})
            if self.persist:
                suggestion = {
                    "number": number,
                    "hyperparameters": hyperparameters,
                    "key": entry.key,
                }
                self.store.write_suggestion(self.spec.name, cell.study_id, number, suggestion)
            self._consider(entry)

    def complete(self, key: str) -> None:
        """Take note that the trial's record has landed."""
        waiting = self._running.pop(key, [])
        if waiting:  # the others wait for the first one's record
            self.cells[waiting[0].cell].running -= 1
        for entry in waiting:
            self._settle(entry)

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
        if cell.best is None:
            return None
        return self.entries[f"{cell.study_id}/search/{cell.best[0]}"].config.hyperparameters

    def hyperparameters(self, cell: Cell, number: int) -> dict[str, Value]:
        """The searched knobs of a cell's trial ``number``."""
        chosen = self.entries[f"{cell.study_id}/search/{number}"].config.hyperparameters
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

    def _consider(self, entry: Entry) -> None:
        """Settle a trial whose record exists, wait for one that runs, queue any other."""
        self.entries[self._place(entry)] = entry
        if self._is_done(entry):
            self._settle(entry)
        elif entry.key in self._running:
            self._running[entry.key].append(entry)
        else:
            self._queue.append(entry)

    def _settle(self, entry: Entry) -> None:
        cell = self.cells[entry.cell]
        record = self.store.record(entry.key)
        failed = record is None or record["status"] != "done"
        cell.done += 1
        cell.failed += failed
        if entry.config.phase == "search":
            objective = math.nan
            if record is not None and not failed:
                objective = float(record["validation"][self.spec.search.objective])
            cell.study.tell(entry.number, objective)
            self._confirm_when_searched(cell)
        if record is not None:
            self.on_done(entry)

    def _confirm_when_searched(self, cell: Cell) -> None:
        if not cell.study.finished or cell.confirming:
            return
        cell.confirming = True
        chosen = self.chosen(cell)
        if chosen is None:  # every search trial failed: nothing is left to confirm
            cell.total = cell.done
            return
        for repeat in range(self.spec.confirm_seeds):
            self._consider(self._confirm_entry(cell, chosen, repeat))

    def _is_done(self, entry: Entry) -> bool:
        record = self.store.record(entry.key)
        if record is None:
            return False
        if record["status"] != "done" or entry.config.phase == "search":
            return True
        return not missing_maps(self.store, entry.key, self.spec.maps, self.spec.evaluation)

    def _cell(self, dataset: str, row: str) -> Cell:
        space = self.spec.space(row)
        study = Study(space, self.spec.search, self.spec.seed, f"{dataset}/{row}")
        template = self._config(dataset, row, {}, self.spec.seed, "search")
        identity = {
            "trial": template.model_dump(mode="json"),
            "fixed": space.fixed,
            "searched": {name: repr(domain) for name, domain in space.searched.items()},
            "search": self.spec.search.model_dump(exclude={"trials"}),
        }
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]
        study_id = f"{file_name(dataset)}/{file_name(row)}/{digest}"
        total = study.budget + self.spec.confirm_seeds
        return Cell(dataset, row, study, study_id, total)

    def _search_entry(self, cell: Cell, number: int, suggestion: dict[str, Any]) -> Entry:
        config = self._config(
            cell.dataset, cell.row, suggestion["hyperparameters"], self.spec.seed, "search"
        )
        return Entry(config.key(), config, number, cell.row)

    def _confirm_entry(self, cell: Cell, chosen: dict[str, Value], repeat: int) -> Entry:
        seed = self.spec.seed + 1 + repeat
        config = self._config(cell.dataset, cell.row, chosen, seed, "confirm")
        return Entry(config.key(), config, repeat, cell.row)

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
            training=self.spec.row_training(row),
            seed=seed,
            phase=phase,
        )

    def _place(self, entry: Entry) -> str:
        study_id = self.cells[entry.cell].study_id
        return f"{study_id}/{entry.config.phase}/{entry.number}"
