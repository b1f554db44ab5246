"""One search per (dataset, row), by ask and tell.

The search is a projection of the store: every suggestion is persisted before its training starts,
and its result is read from the trial's record, so a search lost with its process is rebuilt by
replaying. Its results are known without Optuna, whose study is made only to suggest or to stop
something.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from calibration.hyperparameters import Value
from sweeps.search.config import SchedulerConfig, SearchConfig
from sweeps.search.samplers import SAMPLERS
from sweeps.search.space import Configuration, Space, grid
from sweeps.search.stopping import rungs

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from sweeps.search.optuna_study import OptunaStudy

NO_SCHEDULER = SchedulerConfig()
FEWEST_TRIALS = 4


class Result(NamedTuple):
    """The outcome of a trial: its objectives in the config's order, each in its own direction."""

    values: tuple[float, ...]
    nll: float
    seconds: float
    state: Literal["done", "pruned", "failed"]


class Study:
    """The search of one row's space on one dataset.

    ``ask`` returns the next hyperparameters until the budget is spent; ``tell`` takes their
    result. A trial that failed, was stopped early or has an objective that is not a finite number
    can never be the best. ``extra`` trials are allowed beyond the config's limit; they do not
    extend a grid, and a time limit holds for them too.
    """

    def __init__(
        self,
        space: Space,
        config: SearchConfig,
        seed: int,
        label: str,
        *,
        scheduler: SchedulerConfig = NO_SCHEDULER,
        epochs: int = 1,
        extra: int = 0,
    ) -> None:
        self.space = space
        self.config = config
        self.seed = seed if config.seed is None else config.seed
        self.label = label
        self.extra = extra
        is_grid = bool(space.grid) or config.is_grid
        self.points = grid(space, config.resolution) if is_grid else []
        # Optuna cannot weigh unfinished trials by several objectives.
        self.rungs = rungs(scheduler, epochs) if len(config.objective) == 1 else []
        self._scheduler, self._epochs = scheduler, epochs
        self._events: list[Callable[[OptunaStudy], object]] = []
        self._asked = 0
        self._running: set[int] = set()
        self._decisions: dict[int, dict[int, bool]] = {}
        self._results: dict[int, Result] = {}
        self._front: list[int] = []
        self._spent = 0.0
        # Time alone would suggest the few points of a small space again and again.
        self._points_in_all = space.size if config.limit is None else math.inf

    @property
    def budget(self) -> int | None:
        """How many trials the search will have; None if only its time is limited.

        A space with nothing to search needs none.
        """
        if not self.space.searched:
            return 0
        if self.points:
            return len(self.points)
        return None if self.config.limit is None else self.config.limit + self.extra

    @property
    def asked(self) -> int:
        """How many suggestions were made."""
        return self._asked

    @property
    def told(self) -> int:
        """How many of them have a result."""
        return len(self._results)

    @property
    def exhausted(self) -> bool:
        """Whether no suggestion is left: all are made, or the time is spent."""
        if self.budget is not None and self.asked >= self.budget:
            return True
        limit = self.config.time
        if limit is None or self.points:
            return False
        return self._spent >= limit or self._asked >= self._points_in_all

    @property
    def finished(self) -> bool:
        """Whether no suggestion is left, and every one has its result."""
        return self.exhausted and not self._running

    @property
    def waiting(self) -> bool:
        """Whether the next suggestion starts a round, while the previous round has not ended.

        So suggestions and early stopping depend on the seed and on results, never on when results
        arrive.
        """
        batch = self._round
        return batch is not None and self._asked % batch == 0 and bool(self._running)

    @property
    def mid_round(self) -> bool:
        """Whether some suggestions of a round are made, and others are not yet."""
        batch = self._round
        return batch is not None and self._asked % batch != 0 and not self.exhausted

    @property
    def foreseen(self) -> int:
        """How many suggestions can be made now that no further result would change.

        These are the points of a grid, those that a sampler suggests without looking at results,
        and the rest of a round. A search bounded by time makes none ahead of time.
        """
        budget, sampler = self.budget, SAMPLERS[self.config.sampler]
        if self.exhausted or self.waiting or budget is None or self.config.time is not None:
            return 0
        if self._round is not None:
            end = self._round * (self._asked // self._round + 1)
        else:
            end = budget if self.points or not sampler.learns else sampler.startup
        return max(0, min(end, budget) - self._asked)

    @property
    def _round(self) -> int | None:
        """The size of a round; None if rounds change nothing."""
        learns = not self.points and SAMPLERS[self.config.sampler].learns
        return self.config.batch if learns or self.rungs else None

    def ask(self) -> tuple[int, dict[str, Value]]:
        """The next trial's number and hyperparameters, fixed ones included.

        Raises ``ValueError`` if a grid is exhausted or nothing is searched.
        """
        number = self.asked
        if not self.space.searched or (self.points and number >= len(self.points)):
            raise ValueError(f"the search of {self.label!r} is over after {number} trials")
        begun = self.points or self.space.first
        given = begun[number] if number < len(begun) else {}
        chosen = self._optuna.next(number, given, replayed=False)
        self._begin(number)
        return number, self.space.fixed | chosen

    def replay(self, number: int, suggestion: dict[str, Any]) -> None:
        """Repeat a persisted suggestion.

        Raises ``ValueError`` if ``number`` is not the next one, or if the suggestion does
        not fit the space.
        """
        if number != self.asked:
            raise ValueError(f"found suggestion {number} of {self.label!r}; next is {self.asked}")
        try:
            given = self._given(number, suggestion)
        except ValueError as error:
            raise ValueError(f"suggestion {number} of {self.label!r}: {error}") from None
        self._pass_on(lambda optuna: optuna.next(number, given, replayed=True))
        self._begin(number)

    def _begin(self, number: int) -> None:
        self._running.add(number)
        self._asked = number + 1

    def report(self, number: int, epoch: int, nll: float) -> bool:
        """Take note of a trial's best validation NLL so far; True if it should stop.

        Only rungs count, each once: the same rung again gets the same answer. A trial's rungs must
        come in order, including those before a checkpoint.
        """
        if number not in self._running or epoch not in self.rungs:
            return False
        decisions = self._decisions.setdefault(number, {})
        if epoch not in decisions:
            decisions[epoch] = self._optuna.report(number, epoch, nll)
        return decisions[epoch]

    def note(self, number: int, epoch: int, nll: float) -> None:
        """Take note of a rung of a trial that has ended: others are compared with it there."""
        decisions = self._decisions.setdefault(number, {})
        if number in self._running and epoch in self.rungs and epoch not in decisions:
            decisions[epoch] = False
            self._pass_on(lambda optuna: optuna.report(number, epoch, nll))

    def tell(self, number: int, result: Result) -> None:
        """Take note of the result of a trial.

        Raises ``ValueError`` if it was not asked for or already has a result.
        """
        if number not in self._running:
            raise ValueError(f"trial {number} of {self.label!r} is not waiting for a result")
        self._running.remove(number)
        self._decisions.pop(number, None)
        if result.state == "done" and not all(math.isfinite(value) for value in result.values):
            result = result._replace(state="failed")
        values = result.values if result.state == "done" else None
        self._pass_on(lambda optuna: optuna.tell(number, values, stopped=result.state == "pruned"))
        self._results[number] = result
        self._spent += result.seconds if math.isfinite(result.seconds) else 0.0
        if result.state == "done":
            self._compare(number)

    def best(self) -> int | None:
        """The number of the best finished trial; None while there is none.

        Of several objectives' Pareto set it is the one with the lowest NLL. Among equals
        the first trial wins.
        """

        def place(number: int) -> tuple[float, int]:
            nll = self._results[number].nll
            return (nll if math.isfinite(nll) else math.inf), number

        return min(self._front, key=place, default=None)

    def front(self) -> list[int]:
        """The numbers of the Pareto set; with one objective, of the best trial alone."""
        return sorted(self._front)

    def values(self, number: int) -> tuple[float, ...] | None:
        """The objectives of a finished trial; None if it failed, was stopped or still runs."""
        result = self._results.get(number)
        return result.values if result is not None and result.state == "done" else None

    def result(self, number: int) -> Result | None:
        """The result of a trial; None while it runs."""
        return self._results.get(number)

    def trials(self) -> list[FrozenTrial]:
        """Optuna's own trials, by number; not to be changed."""
        return self._optuna.trials()

    def importance(self) -> dict[str, float]:
        """The share of the objective's variance that each hyperparameter explains, most first.

        By fANOVA (Hutter et al. 2014) of the finished trials, on the first objective; PED-ANOVA
        looks at the best tenth of the trials, which of a dozen is one. Hyperparameters that only
        some trials have are left out. Empty if nothing can be said: fewer than ``FEWEST_TRIALS``
        finished, or all equally good.
        """
        done = [result.values[0] for result in self._results.values() if result.state == "done"]
        if len(done) < FEWEST_TRIALS or min(done) == max(done):
            return {}
        return self._optuna.importance()

    @cached_property
    def _optuna(self) -> OptunaStudy:
        """Made when it is needed: reading a search's results does not need it."""
        from sweeps.search.optuna_study import OptunaStudy

        made = OptunaStudy(
            self.space,
            self.config,
            self.seed,
            self.label,
            scheduler=self._scheduler,
            epochs=self._epochs,
            listed=bool(self.points),
        )
        for event in self._events:
            event(made)
        self._events.clear()
        return made

    def _pass_on(self, event: Callable[[OptunaStudy], object]) -> None:
        """Pass an event to Optuna, now or when its study is made."""
        if "_optuna" in vars(self):
            event(self._optuna)
        else:
            self._events.append(event)

    def _given(self, number: int, suggestion: dict[str, Any]) -> Configuration:
        """The searched hyperparameters of a persisted suggestion."""
        if self.points:
            wanted = list(self.points[number]) if number < len(self.points) else []
        else:
            wanted = [n for n in self.space.searched if self.space.active(n, suggestion)]
        missing = [name for name in wanted if name not in suggestion]
        if missing or not wanted:
            raise ValueError(f"found {suggestion!r}, which does not set {missing or 'a point'}")
        return self.space.checked({name: suggestion[name] for name in wanted})

    def _compare(self, number: int) -> None:
        """Add a finished trial to the Pareto set, unless another dominates it."""
        new = self._losses(number)
        others = {n: self._losses(n) for n in self._front}
        if any(_dominates(other, new) for other in others.values()):
            return
        left = [n for n in self._front if not _dominates(new, others[n])] + [number]
        # With one objective those left are equally good.
        self._front = left if len(new) > 1 else [min(left)]

    def _losses(self, number: int) -> tuple[float, ...]:
        pairs = zip(self._results[number].values, self.config.objective, strict=True)
        return tuple(-v if objective.direction == "maximize" else v for v, objective in pairs)


def unsupported(config: SearchConfig, space: Space) -> str | None:
    """Why the sampler cannot search ``space`` as ``config`` says, and what can; None if it can."""
    sampler, objectives = SAMPLERS[config.sampler], len(config.objective)
    if objectives > 1 and not (sampler.several_objectives or space.grid):
        others = " or ".join(name for name, other in SAMPLERS.items() if other.several_objectives)
        return (
            f"{config.sampler} supports one objective, but there are {objectives}; "
            f"write {others}, or one objective"
        )
    if space.conditions and not sampler.conditions:
        others = " or ".join(name for name, other in SAMPLERS.items() if other.conditions)
        hyperparameter = next(iter(space.conditions))
        return (
            f"{config.sampler} cannot search a hyperparameter with a condition, but "
            f"{hyperparameter!r} has one; write {others}, or leave 'when' out"
        )
    return None


def _dominates(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))
