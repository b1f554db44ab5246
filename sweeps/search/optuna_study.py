"""Optuna's part of a search: what to try next, and what to stop.

The sampler is seeded anew for every trial number: a replayed study suggests what the
uninterrupted one would have.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import optuna
from optuna.trial import FrozenTrial, TrialState

from calibration.seeds import derive_seed
from sweeps.host.process import quiet
from sweeps.search.config import SchedulerConfig, SearchConfig
from sweeps.search.guided import Guided, distribution, suggest
from sweeps.search.pruners import pruner
from sweeps.search.samplers import SAMPLERS, Sampler, SamplerError
from sweeps.search.space import Configuration, Space

# Its warnings are about a sampler's internals, not about what went wrong.
QUIET = {"optuna": optuna.logging.ERROR}


class OptunaStudy:
    """Optuna's side of one ``Study``; ``listed``: every point is given."""

    def __init__(
        self,
        space: Space,
        config: SearchConfig,
        seed: int,
        label: str,
        *,
        scheduler: SchedulerConfig,
        epochs: int,
        listed: bool,
    ) -> None:
        self._space, self._config, self._seed, self._label = space, config, seed, label
        self._distributions = {n: distribution(d) for n, d in space.searched.items()}
        self._always = {n: d for n, d in self._distributions.items() if n not in space.conditions}
        with self._sampler_blamed(label):
            self._sampler = self._made("grid" if listed else config.sampler)
            related = self._sampler.related()
            self._related = (
                None
                if related is None
                else {
                    hyperparameter: self._distributions[hyperparameter]
                    for hyperparameter in related
                }
            )
        self._replayer = self._sampler if self._sampler.keeps_notes else self._made("random")
        self._running: dict[int, optuna.Trial] = {}
        with quiet(QUIET):
            self._study = optuna.create_study(
                study_name=label,
                directions=[objective.direction for objective in config.objective],
                pruner=pruner(scheduler, epochs, config.batch),
            )

    def next(self, number: int, given: Configuration, *, replayed: bool) -> Configuration:
        """The searched hyperparameters of the next trial, those that are ``given`` as they are.

        A ``replayed`` trial needs no suggestion. Raises ``SamplerError`` if the sampler fails.
        """
        with self._sampler_blamed(f"{self._label}, trial {number}"):
            return self._ask(number, given, self._replayer if replayed else self._sampler)

    @contextmanager
    def _sampler_blamed(self, place: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # it may be a user's own
            name, kind = self._config.sampler, type(error).__name__
            raise SamplerError(f"{place}: the sampler {name!r} failed: {kind}: {error}") from error

    def _made(self, name: str) -> Sampler:
        return SAMPLERS[name](self._space, len(self._config.objective))

    def _ask(self, number: int, given: Configuration, sampler: Sampler) -> Configuration:
        seed = derive_seed(self._seed, self._label, number) % 2**32
        self._study.sampler = Guided(
            sampler.make(seed),
            {n: (value, self._distributions[n]) for n, value in given.items()},
            self._related,
        )
        listed = {n: self._distributions[n] for n in given} if self._space.grid else None
        with quiet(QUIET):
            trial = self._study.ask(self._always if listed is None else listed)
        chosen: Configuration = trial.params
        for hyperparameter, domain in self._distributions.items():
            if hyperparameter in self._space.conditions and self._space.active(
                hyperparameter, chosen
            ):
                chosen[hyperparameter] = suggest(trial, hyperparameter, domain)
        self._running[number] = trial
        return chosen

    def report(self, number: int, epoch: int, nll: float) -> bool:
        """Take note of a trial's best validation NLL at a rung; True if it should stop."""
        if not math.isfinite(nll):
            return True
        # Optuna assumes that a trial's reports have the objective's direction; NLL is a loss.
        maximised = self._config.objective[0].direction == "maximize"
        trial = self._running[number]
        trial.report(-nll if maximised else nll, epoch)
        return trial.should_prune()

    def tell(self, number: int, values: tuple[float, ...] | None, *, stopped: bool) -> None:
        """Take note of a trial's end; one without values was stopped or failed."""
        trial = self._running.pop(number)
        if values is not None:
            self._study.tell(trial, values)
        else:
            self._study.tell(trial, state=TrialState.PRUNED if stopped else TrialState.FAIL)

    def trials(self) -> list[FrozenTrial]:
        """Every trial, by number; not to be changed."""
        return self._study.get_trials(deepcopy=False)

    def importance(self) -> dict[str, float]:
        """See ``Study.importance``."""
        evaluator = optuna.importance.FanovaImportanceEvaluator(n_trees=32, seed=self._seed)
        try:
            found = evaluator.evaluate(self._study, target=lambda trial: trial.values[0])
        except RuntimeError:  # values that differ in their last digits only: no tree is split
            return {}
        total = sum(found.values())
        return {name: float(part / total) for name, part in found.items()} if total else {}
