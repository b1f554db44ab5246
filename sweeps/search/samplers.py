"""Optuna's samplers, one for every trial.

Each trial has a sampler of its own, seeded for its number, so nothing carries over from one
to the next but what stands in the study's trials.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, cast

import optuna
from optuna import samplers
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState

from calibration.hyperparameters import Choice, Domain, Integer, LogUniform, Uniform, Value
from sweeps.search.config import Sampler

# Constants, because a raised budget must continue with the same suggestions.
STARTUP_TRIALS = 5
POPULATION = 16


def sampler(name: Sampler, seed: int, *, grouped: bool, replayed: bool) -> samplers.BaseSampler:
    """The sampler of one trial.

    ``grouped`` lets TPE treat knobs together that are searched together. A ``replayed``
    trial needs no suggestion, so the samplers that cost time are spared; but CMA-ES and
    NSGA-II keep their state in the trials they suggest, and replayed ones need it too.
    """
    if name == "cmaes":
        return samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)
    if name == "nsga2":
        return samplers.NSGAIISampler(seed=seed, population_size=POPULATION)
    if name == "tpe" and not replayed:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return samplers.TPESampler(seed=seed, n_startup_trials=STARTUP_TRIALS, group=grouped)
    if name == "gp" and not replayed:
        return samplers.GPSampler(
            seed=seed, n_startup_trials=STARTUP_TRIALS, warn_independent_sampling=False
        )
    return samplers.RandomSampler(seed=seed)


def treated_together(
    name: Sampler, always: Mapping[str, BaseDistribution]
) -> dict[str, BaseDistribution] | None:
    """Of the knobs that are always searched, those the sampler relates to each other.

    The others it draws one by one, at random. None: it finds out from the trials, as TPE
    does. CMA-ES must be told: conditional knobs would change its dimension for good.
    """
    if name not in ("cmaes", "gp", "nsga2"):
        return None
    return {
        knob: always[knob]
        for knob in sorted(always)
        if not always[knob].single()
        and not (name == "cmaes" and isinstance(always[knob], CategoricalDistribution))
    }


class Guided(samplers.BaseSampler):
    """A sampler overruled by ``given`` values, which then count as its own suggestion.

    Unlike Optuna's queue of waiting trials it lets the sampler take its notes on the trial:
    CMA-ES and NSGA-II find their generations in them.
    """

    def __init__(
        self,
        inner: samplers.BaseSampler,
        given: Mapping[str, tuple[Value, BaseDistribution]],
        together: dict[str, BaseDistribution] | None,
    ) -> None:
        self._inner = inner
        self._given = given
        self._together = together

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """What the sampler relates to each other, and all that is given."""
        if self._together is None:
            self._together = self._inner.infer_relative_search_space(study, trial)
        return self._together | {knob: domain for knob, (_, domain) in self._given.items()}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The sampler's values, and over them those given."""
        sampled = self._inner.sample_relative(study, trial, self._together or {})
        return sampled | {knob: value for knob, (value, _) in self._given.items()}

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """The sampler's value for one more knob."""
        return self._inner.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """Whatever the sampler does after a trial."""
        self._inner.after_trial(study, trial, state, values)


def distribution(domain: Domain) -> BaseDistribution:
    """The domain in Optuna's terms."""
    match domain:
        case Choice(values):
            return CategoricalDistribution(values)
        case Uniform(low, high):
            return FloatDistribution(low, high)
        case LogUniform(low, high):
            return FloatDistribution(low, high, log=True)
        case Integer(low, high, log):
            return IntDistribution(low, high, log=log)


def suggest(trial: optuna.Trial, name: str, domain: BaseDistribution) -> Value:
    """The trial's value of one more knob."""
    match domain:
        case FloatDistribution():
            return trial.suggest_float(name, domain.low, domain.high, log=domain.log)
        case IntDistribution():
            return trial.suggest_int(name, domain.low, domain.high, log=domain.log)
        case CategoricalDistribution():
            return cast(Value, trial.suggest_categorical(name, domain.choices))
    raise TypeError(f"unknown distribution {domain!r}")
