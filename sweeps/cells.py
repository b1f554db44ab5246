"""What a sweep consists of: its cells, and the trial that each entry of a cell stands for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from calibration.hyperparameters import Value
from calibration.methods import make_method
from sweeps.schema import Objective, SearchConfig
from sweeps.search import Study
from sweeps.space import Space
from sweeps.spec import LoadedSpec
from sweeps.store import file_name
from sweeps.trial import TrialConfig

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
    former_id: str
    """What its study was called when the place of a data file was still part of it."""
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


class Cells:
    """Makes the cells of a spec and the entries of their trials."""

    def __init__(self, loaded: LoadedSpec) -> None:
        self.loaded = loaded
        self.spec = loaded.spec
        self._training = {row: self.spec.row_training(row) for row in self.spec.methods}

    def cell(self, dataset: str, row: str, extra: int = 0) -> Cell:
        """A cell with nothing asked yet; ``extra`` trials beyond the spec's budget."""
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
            "fixed": space.fixed,
            "searched": {name: repr(domain) for name, domain in space.searched.items()},
            "search": _search_identity(search),
            **_further_identity(space),
        }
        if self.spec.scheduler.name != "none":
            identity["scheduler"] = self.spec.scheduler.model_dump()
        home = f"{file_name(dataset)}/{file_name(row)}"
        now, former = (
            f"{home}/{_digest(identity | {'trial': trial})}"
            for trial in (_without_places(template), template.model_dump(mode="json"))
        )
        return Cell(dataset, row, study, now, self.spec.confirm_seeds, former)

    def search_entry(self, cell: Cell, number: int, hyperparameters: dict[str, Any]) -> Entry:
        """A cell's search trial ``number``."""
        config = self.config(cell.dataset, cell.row, hyperparameters, self.spec.seed, "search")
        return Entry(config.key(), config, number, cell.row, cell.study_id)

    def confirm_entry(self, cell: Cell, chosen: dict[str, Value], repeat: int) -> Entry:
        """A cell's confirm trial with its seed number ``repeat``."""
        seed = self.spec.seed + 1 + repeat
        config = self.config(cell.dataset, cell.row, chosen, seed, "confirm")
        return Entry(config.key(), config, repeat, cell.row, cell.study_id)

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
    return tuple(measured.get(objective.metric, float("nan")) for objective in objectives)


def _digest(identity: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]


def _without_places(template: TrialConfig) -> dict[str, Any]:
    """The trial wherever its files lie: what is in them, the fingerprint tells."""
    trial = template.model_dump(mode="json")
    trial["dataset"]["options"] = {
        name: Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value
        for name, value in trial["dataset"]["options"].items()
    }
    return trial


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
