"""One Optuna study per (dataset, method), by ask and tell.

The study is a projection of the store: every suggestion is persisted before its training
starts and its value is read from the trial's record, so a study lost with its process is
rebuilt by replaying. The sampler is seeded anew for every trial number: a replayed study
then suggests what the uninterrupted one would have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import optuna

from calibration.hyperparameters import Choice, Domain, Integer, LogUniform, Uniform, Value
from calibration.seeds import derive_seed
from sweeps.schema import SearchConfig
from sweeps.space import Space, grid

optuna.logging.set_verbosity(optuna.logging.WARNING)


@dataclass
class Study:
    """The search of one method's space on one dataset.

    ``ask`` gives the next hyperparameters until the budget is spent; ``tell`` brings back
    the objective, NaN for a failed trial, which can never be the best.
    """

    space: Space
    config: SearchConfig
    seed: int
    label: str
    points: list[dict[str, Value]] = field(init=False)

    def __post_init__(self) -> None:
        self._study = optuna.create_study(direction="minimize")
        self._distributions = {n: distribution(d) for n, d in self.space.searched.items()}
        is_grid = self.config.sampler == "grid"
        self.points = grid(self.space, self.config.resolution) if is_grid else []
        self._trials: list[optuna.Trial] = []
        self._values: dict[int, float] = {}

    @property
    def budget(self) -> int:
        """How many trials the search will have; a space with nothing to search needs none."""
        if not self.space.searched:
            return 0
        return len(self.points) or self.config.trials

    @property
    def asked(self) -> int:
        """How many suggestions were made."""
        return len(self._trials)

    @property
    def told(self) -> int:
        """How many of them have a result."""
        return len(self._values)

    @property
    def exhausted(self) -> bool:
        """No suggestion is left to be made."""
        return self.asked >= self.budget

    @property
    def finished(self) -> bool:
        """Every suggestion of the budget has its result."""
        return self.told >= self.budget

    def ask(self) -> tuple[int, dict[str, Value]]:
        """The next trial's number and hyperparameters, fixed ones included."""
        number = self.asked
        self._study.sampler = self._sampler(number)
        if self.points:
            self._study.enqueue_trial(self.points[number])
        return number, self._next()

    def replay(self, suggestion: dict[str, Any]) -> int:
        """Repeat a persisted suggestion; returns its number."""
        number = self.asked
        searched = {n: suggestion[n] for n in self._distributions if n in suggestion}
        self._study.enqueue_trial(searched)
        self._next()
        return number

    def tell(self, number: int, value: float) -> None:
        """Report the objective of a trial."""
        self._values[number] = value
        if math.isfinite(value):
            self._study.tell(self._trials[number], value)
        else:
            self._study.tell(self._trials[number], state=optuna.trial.TrialState.FAIL)

    def best(self) -> tuple[int, float] | None:
        """Number and objective of the best finished trial; None if every one failed."""
        finite = {n: v for n, v in self._values.items() if math.isfinite(v)}
        if not finite:
            return None
        number = min(finite, key=lambda n: (finite[n], n))
        return number, finite[number]

    def _next(self) -> dict[str, Value]:
        trial = self._study.ask(self._distributions)
        self._trials.append(trial)
        return self.space.fixed | trial.params

    def _sampler(self, number: int) -> optuna.samplers.BaseSampler:
        seed = derive_seed(self.seed, self.label, number) % 2**32
        if self.config.sampler == "tpe":
            return optuna.samplers.TPESampler(seed=seed, n_startup_trials=max(5, self.budget // 4))
        return optuna.samplers.RandomSampler(seed=seed)


def distribution(domain: Domain) -> optuna.distributions.BaseDistribution:
    """The domain in Optuna's terms."""
    match domain:
        case Choice(values):
            return optuna.distributions.CategoricalDistribution(values)
        case Uniform(low, high):
            return optuna.distributions.FloatDistribution(low, high)
        case LogUniform(low, high):
            return optuna.distributions.FloatDistribution(low, high, log=True)
        case Integer(low, high, log):
            return optuna.distributions.IntDistribution(low, high, log=log)
