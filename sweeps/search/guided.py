"""Optuna's side of a suggestion: given values, domains, conditional hyperparameters."""

from __future__ import annotations

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


class Guided(samplers.BaseSampler):
    """A sampler overruled by ``given`` values, which then count as its own suggestion.

    Unlike Optuna's queue of waiting trials, it lets the sampler store its own attributes with the
    trial: CMA-ES and NSGA-II find their generations there.
    """

    def __init__(
        self,
        inner: samplers.BaseSampler,
        given: Mapping[str, tuple[Value, BaseDistribution]],
        related: dict[str, BaseDistribution] | None,
    ) -> None:
        self._inner = inner
        self._given = given
        self._related = related

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """The hyperparameters that the sampler relates to each other, and all given ones."""
        if self._related is None:
            self._related = self._inner.infer_relative_search_space(study, trial)
        return self._related | {
            hyperparameter: domain for hyperparameter, (_, domain) in self._given.items()
        }

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The sampler's values, overridden by the given ones."""
        sampled = self._inner.sample_relative(study, trial, self._related or {})
        return sampled | {
            hyperparameter: value for hyperparameter, (value, _) in self._given.items()
        }

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """The sampler's value for one more hyperparameter."""
        return self._inner.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """What the sampler does after a trial."""
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
    """The trial's value of one more hyperparameter."""
    match domain:
        case FloatDistribution():
            return trial.suggest_float(name, domain.low, domain.high, log=domain.log)
        case IntDistribution():
            return trial.suggest_int(name, domain.low, domain.high, log=domain.log)
        case CategoricalDistribution():
            return cast(Value, trial.suggest_categorical(name, domain.choices))
    raise TypeError(f"unknown distribution {domain!r}")
