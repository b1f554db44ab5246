"""The cells of a sweep, and the trials of each cell."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from calibration.hyperparameters import Value
from calibration.learners import Estimator, make_learner, trains_network
from calibration.methods import Method
from sweeps.engine.identity import TrialConfig, determining, metric_version
from sweeps.search import SAMPLERS, Study
from sweeps.search.config import SchedulerConfig, SearchConfig, SearchObjective
from sweeps.search.domains import written
from sweeps.search.space import Space
from sweeps.spec import LoadedSpec
from sweeps.store import file_name

Phase = Literal["search", "confirm"]


@dataclass(frozen=True)
class PlannedTrial:
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
        """The name of the cell's study."""
        return f"{self.dataset}/{self.row}"

    @property
    def total(self) -> int:
        """How many trials it will have, as far as that is known."""
        budget = self.study.budget
        searched = self.study.asked if budget is None else budget
        return self.done if self.hopeless else searched + self.seeds


class Cells:
    """Makes the cells of a spec and their trials."""

    def __init__(self, loaded: LoadedSpec) -> None:
        self.loaded = loaded
        self.spec = loaded.spec
        self._objective = tuple(objective.metric for objective in self.spec.search.objective)
        self._training = {row: self.spec.row_training(row) for row in self.spec.methods}

    def cell(self, dataset: str, row: str, extra: int = 0) -> Cell:
        """A cell without any suggestion yet, with ``extra`` trials beyond the spec's budget."""
        space = self.spec.space(row)
        search = self.spec.search
        study = Study(
            space,
            search,
            self.spec.seed,
            f"{dataset}/{row}",
            scheduler=self.spec.scheduler,
            epochs=self._training[row].epochs,
            extra=extra,
        )
        template = self.config(dataset, row, {}, self.spec.seed, "search")
        identity: dict[str, Any] = {
            "trial": determining(template),
            "space": _space_identity(space),
            "search": _search_identity(search),
            "scheduler": _scheduler_identity(self.spec.scheduler, search.batch),
        }
        study_id = f"{file_name(dataset)}/{file_name(row)}/{_digest(identity)}"
        return Cell(dataset, row, study, study_id, self.spec.confirm_seeds)

    def search_trial(
        self, cell: Cell, number: int, hyperparameters: dict[str, Any]
    ) -> PlannedTrial:
        """A cell's search trial ``number``."""
        config = self.config(cell.dataset, cell.row, hyperparameters, self.spec.seed, "search")
        return PlannedTrial(config.key(), config, number, cell.row, cell.study_id)

    def confirm_trial(self, cell: Cell, chosen: dict[str, Value], repeat: int) -> PlannedTrial:
        """A cell's confirm trial with its seed number ``repeat``."""
        seed = self.spec.confirm_seed(repeat)
        config = self.config(cell.dataset, cell.row, chosen, seed, "confirm")
        return PlannedTrial(config.key(), config, repeat, cell.row, cell.study_id)

    def config(
        self,
        dataset: str,
        row: str,
        hyperparameters: dict[str, Value],
        seed: int,
        phase: Phase,
    ) -> TrialConfig:
        """The trial of a row with these hyperparameters, the others at their defaults."""
        index = list(self.loaded.datasets).index(dataset)
        method = self.spec.methods[row].method
        # Defaults are written out: a record says what was used, and keys change with it.
        learned = make_learner(method, hyperparameters)
        made = learned.hyperparameters
        is_network = trains_network(method)
        return TrialConfig(
            dataset=self.spec.datasets[index],
            dataset_name=dataset,
            fingerprint=self.loaded.datasets[dataset].fingerprint,
            protocol=self.spec.protocol,
            model=self.spec.model if is_network else None,
            method=method,
            hyperparameters=made.model_dump(exclude_none=True),
            training=self._training[row],
            seed=seed,
            phase=phase,
            device=self.spec.resources.trains_on if is_network else "cpu",
            objective=self._objective if phase == "search" else (),
            encoder=self.loaded.encoder if is_network else "",
            any_seed=phase == "confirm" and self._any_seed(learned, dataset),
        )

    def _any_seed(self, learned: Method | Estimator, dataset: str) -> bool:
        """Whether all confirm trials give the same result: then one training serves every seed."""
        # Rows that are held out for every row of the spec are drawn anew with every seed.
        same_rows = not self.spec.protocol.same_training_rows
        fixed = same_rows and self.loaded.datasets[dataset].fixed_split
        return fixed and isinstance(learned, Estimator) and learned.deterministic


def objective_values(
    measured: Mapping[str, float], objectives: Sequence[SearchObjective]
) -> tuple[float, ...]:
    """The value of each objective among a trial's validation metrics; NaN if not measured."""
    return tuple(measured.get(objective.metric, float("nan")) for objective in objectives)


def _digest(identity: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]


def _space_identity(space: Space) -> dict[str, Any]:
    return {
        "fixed": space.fixed,
        "searched": {name: written(domain) for name, domain in space.searched.items()},
        "conditions": space.conditions,
        "grid": space.grid,
        "first": space.first,
    }


def _search_identity(search: SearchConfig) -> dict[str, Any]:
    """The settings that make it a different search; not its budget, which may be raised."""
    version = SAMPLERS[search.sampler].version
    # Searches without rounds keep their ids; a sampler that does not learn ignores rounds.
    in_rounds = search.batch is not None and SAMPLERS[search.sampler].learns
    return ({"batch": search.batch} if in_rounds else {}) | {
        # Only later versions: until a sampler changes, its searches keep their ids.
        "sampler": search.sampler if version == 1 else [search.sampler, version],
        "resolution": search.resolution,
        "objective": [[objective.metric, objective.direction] for objective in search.objective],
        "seed": search.seed,
    }


def _scheduler_identity(scheduler: SchedulerConfig, batch: int | None) -> dict[str, Any] | None:
    if scheduler.name == "none":
        return None
    # In rounds a trial is compared with those of earlier rounds, whatever the sampler.
    return ({} if batch is None else {"batch": batch}) | {
        "name": scheduler.name,
        "grace": scheduler.grace,
        "reduction": scheduler.reduction,
        "metric version": metric_version("nll"),  # by which trials are stopped
    }
