"""One Optuna study per (dataset, method), by ask and tell.

The study is a projection of the store: every suggestion is persisted before its training
starts and its result is read from the trial's record, so a study lost with its process is
rebuilt by replaying. The sampler is seeded anew for every trial number: a replayed study
then suggests what the uninterrupted one would have.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import optuna
from optuna.trial import FrozenTrial, TrialState

from calibration.hyperparameters import Value
from calibration.seeds import derive_seed
from sweeps.process import quiet
from sweeps.schema import SchedulerConfig, SearchConfig
from sweeps.search.samplers import Guided, distribution, sampler, suggest, treated_together
from sweeps.search.stopping import pruner, rungs
from sweeps.space import Point, Space, grid

NO_SCHEDULER = SchedulerConfig()
FEWEST_TRIALS = 4

# Its warnings tell how a sampler works inside, not what went wrong.
QUIET = {"optuna": optuna.logging.ERROR}


class Result(NamedTuple):
    """What came of a trial: its objectives in the config's order, each in its own sense."""

    values: tuple[float, ...]
    nll: float
    seconds: float
    state: Literal["done", "pruned", "failed"]


class Study:
    """The search of one method's space on one dataset.

    ``ask`` gives the next hyperparameters until the budget is spent; ``tell`` brings back
    what came of them. A trial that failed, was stopped early or has an objective that is
    not a finite number can never be the best. ``extra`` trials are allowed beyond the
    config's limit; a grid has the size it has, and a time limit holds for them too.
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
        is_grid = bool(space.grid) or config.sampler == "grid"
        self.points = grid(space, config.resolution) if is_grid else []
        # Optuna cannot weigh unfinished trials by several objectives.
        self.rungs = rungs(scheduler, epochs) if len(config.objective) == 1 else []
        self._distributions = {n: distribution(d) for n, d in space.searched.items()}
        self._always = {n: d for n, d in self._distributions.items() if n not in space.conditions}
        self._together = treated_together(config.sampler, self._always)
        with quiet(QUIET):
            self._study = optuna.create_study(
                study_name=label,
                directions=[objective.direction for objective in config.objective],
                pruner=pruner(scheduler, epochs),
            )
        self._asked = 0
        self._running: dict[int, optuna.Trial] = {}
        self._decisions: dict[int, dict[int, bool]] = {}
        self._results: dict[int, Result] = {}
        self._front: list[int] = []
        self._spent = 0.0
        # Time alone would suggest the few points of a small space again and again.
        self._points_in_all = space.size if config.limit is None else math.inf

    @property
    def budget(self) -> int | None:
        """How many trials the search will have; None when only its time is limited.

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
        """No suggestion is left to be made: all are made, or the time is spent."""
        if self.budget is not None and self.asked >= self.budget:
            return True
        limit = self.config.time
        if limit is None or self.points:
            return False
        return self._spent >= limit or self._asked >= self._points_in_all

    @property
    def finished(self) -> bool:
        """No suggestion is left to be made, and every one has its result."""
        return self.exhausted and not self._running

    def ask(self) -> tuple[int, dict[str, Value]]:
        """The next trial's number and hyperparameters, fixed ones included.

        Raises ``ValueError`` when a grid is over or nothing is searched.
        """
        number = self.asked
        if not self.space.searched or (self.points and number >= len(self.points)):
            raise ValueError(f"the search of {self.label!r} is over after {number} trials")
        begun = self.points or self.space.first
        given = begun[number] if number < len(begun) else {}
        with quiet(QUIET):
            return number, self._next(given, replayed=False)

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
        self._next(given, replayed=True)

    def report(self, number: int, epoch: int, nll: float) -> bool:
        """Take note of a trial's best validation NLL so far; True if it should stop.

        Heard at rungs only, and once: the same rung again gets the same answer. A trial's
        rungs must come in order, those before a checkpoint too.
        """
        if number not in self._running or epoch not in self.rungs:
            return False
        decisions = self._decisions.setdefault(number, {})
        if epoch not in decisions:
            decisions[epoch] = self._decide(self._running[number], epoch, nll)
        return decisions[epoch]

    def tell(self, number: int, result: Result) -> None:
        """Take note of what came of a trial.

        Raises ``ValueError`` if it was not asked for or has its result already.
        """
        if number not in self._running:
            raise ValueError(f"trial {number} of {self.label!r} is not waiting for a result")
        finite = all(math.isfinite(value) for value in result.values)
        trial = self._running.pop(number)
        self._decisions.pop(number, None)
        if result.state == "done" and finite:
            self._study.tell(trial, result.values)
        elif result.state == "pruned":
            self._study.tell(trial, state=TrialState.PRUNED)
        else:
            result = result._replace(state="failed")
            self._study.tell(trial, state=TrialState.FAIL)
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
        """What came of a trial; None while it runs."""
        return self._results.get(number)

    def trials(self) -> list[FrozenTrial]:
        """Optuna's own account of every trial, by number; not to be changed."""
        return self._study.get_trials(deepcopy=False)

    def importance(self) -> dict[str, float]:
        """How much of the objective's variance each knob explains, most first; they sum to 1.

        By fANOVA (Hutter et al. 2014) of the finished trials, on the first objective; PED-ANOVA
        looks at the best tenth of the trials, which of a dozen is one. Knobs that only some
        trials have are left out. Empty if nothing can be said: fewer than ``FEWEST_TRIALS``
        finished, or all equally good.
        """
        done = [result.values[0] for result in self._results.values() if result.state == "done"]
        if len(done) < FEWEST_TRIALS or min(done) == max(done):
            return {}
        evaluator = optuna.importance.FanovaImportanceEvaluator(n_trees=32, seed=self.seed)
        found = evaluator.evaluate(self._study, target=lambda trial: trial.values[0])
        total = sum(found.values())
        return {name: float(part / total) for name, part in found.items()} if total else {}

    def _next(self, given: Point, *, replayed: bool) -> Point:
        number, name = self.asked, "random" if self.points else self.config.sampler
        seed = derive_seed(self.seed, self.label, number) % 2**32
        # With several objectives TPE treats knobs one by one and needs no groups.
        grouped = bool(self.space.conditions) and len(self.config.objective) == 1
        self._study.sampler = Guided(
            sampler(name, seed, grouped=grouped, replayed=replayed),
            {n: (value, self._distributions[n]) for n, value in given.items()},
            self._together,
        )
        listed = {n: self._distributions[n] for n in given} if self.space.grid else None
        trial = self._study.ask(self._always if listed is None else listed)
        chosen: Point = trial.params
        for knob, domain in self._distributions.items():
            if knob in self.space.conditions and self.space.active(knob, chosen):
                chosen[knob] = suggest(trial, knob, domain)
        self._running[number] = trial
        self._asked += 1
        return self.space.fixed | chosen

    def _given(self, number: int, suggestion: dict[str, Any]) -> Point:
        """The searched knobs of a persisted suggestion."""
        if self.points:
            wanted = list(self.points[number]) if number < len(self.points) else []
        else:
            wanted = [n for n in self.space.searched if self.space.active(n, suggestion)]
        missing = [name for name in wanted if name not in suggestion]
        if missing or not wanted:
            raise ValueError(f"found {suggestion!r}, which does not set {missing or 'a point'}")
        return self.space.checked({name: suggestion[name] for name in wanted})

    def _decide(self, trial: optuna.Trial, epoch: int, nll: float) -> bool:
        if not math.isfinite(nll):
            return True
        # Optuna takes a trial's course to have the sense of the objective; NLL is a loss.
        maximised = self.config.objective[0].direction == "maximize"
        trial.report(-nll if maximised else nll, epoch)
        return trial.should_prune()

    def _compare(self, number: int) -> None:
        """Put a finished trial into the Pareto set if no other is better in every way."""
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
    """Why Optuna cannot search ``space`` as ``config`` says, and what can; None if it can."""
    if config.sampler == "cmaes" and len(config.objective) > 1 and not space.grid:
        return (
            f"cmaes searches for one objective, and here are {len(config.objective)}; "
            "write nsga2, tpe, gp or random, or one objective"
        )
    return None


def _dominates(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))
