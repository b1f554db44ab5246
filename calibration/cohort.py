"""Many networks of one shape trained at once, each to the bit as if it were alone.

A cohort stacks its members' states and takes a method's step under ``torch.vmap``: on small
networks and batches most of a step's time goes into calling its operations, and K members
share the calls. Members are ordinary ``TrainingRun``s: each draws from its own generator, is
evaluated by itself, and its ``state_dict`` does not tell in which company it was trained.

**No company changes a number.** Whether a kernel rounds a member's values as it does alone
depends on the kernel, the shapes and the processor: small batched products, and powers or
sigmoids of vectors that do not fill a register, differ (``calibration/steady.py``). So the
first few times that a batch of some shape is met in a company of some size, every member's step
is also taken alone. If it goes through such a kernel, or a single bit differs, batches of that
shape are trained one by one from then on, the others together. On CUDA, too, only steps that
were found equal are taken together.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_map, tree_unflatten

from calibration.data import Part
from calibration.methods import Batch, Numbers, TrainState
from calibration.seeds import derive_seed
from calibration.steady import SteadyLoss, Unsteady
from calibration.training import Totals, TrainingRun

COMPARISONS = 3
"""How many steps of one shape are compared before one is trusted."""

Logs = dict[str, Tensor]
Stepped = tuple[TrainState, Logs]


class ApartError(Exception):
    """Raised when a step cannot be taken together; says why."""


class Cohort:
    """Trainings that go through their epochs together as far as that changes no number.

    Any ``TrainingRun``s may be given: those that agree in all but real-valued hyperparameters,
    seeds and rows, and stand at the same epoch, train together, the rest one by one. A member
    that is done, has raised or was told to ``leave`` takes part in no further epoch; nobody
    else is touched by it. ``failures`` holds what members have raised, ``apart`` why some
    train alone.
    """

    def __init__(self, runs: Iterable[TrainingRun]) -> None:
        self.runs = list(runs)
        self.failures: dict[int, Exception] = {}
        self.apart: dict[Hashable, str] = {}
        self._left: set[int] = set()
        self._passed: dict[Hashable, int | None] = {}  # None: found to differ
        self._stacked: tuple[list[TrainState], TrainState] | None = None
        _share_rows(self.runs)

    @property
    def active(self) -> list[TrainingRun]:
        """The members that train in the next epoch."""
        return [
            run
            for place, run in enumerate(self.runs)
            if not (run.done or place in self.failures or place in self._left)
        ]

    def leave(self, run: TrainingRun) -> None:
        """Train this member no further."""
        self._left.add(self._place(run))

    def run_epoch(self) -> None:
        """Train one epoch of every active member; see ``TrainingRun.run_epoch``."""
        companies: dict[Company, list[TrainingRun]] = {}
        for run in self.active:
            companies.setdefault(company(run), []).append(run)
        for shared, runs in companies.items():
            if not (len(runs) > 1 and shared[0] not in self.apart and self._together(runs)):
                self._one_by_one(runs)

    def _one_by_one(self, runs: Sequence[TrainingRun]) -> None:
        for run in runs:
            try:
                run.run_epoch()
            except Exception as error:  # a user's own method may raise anything; others go on
                self.failures[self._place(run)] = error

    def _together(self, runs: list[TrainingRun]) -> bool:
        """Train one epoch of members of one company; False, and nothing changed, if it cannot be.

        Whatever goes wrong before the last step: taken alone, members will tell whose fault it is.
        """
        began = time.perf_counter()
        kind = company(runs[0])[0]
        try:
            if reason := _alone(runs[0]):
                raise ApartError(reason)
            with torch.no_grad():
                state, numbers, totals, passes = self._steps(runs)
        except ApartError as error:
            self.apart[kind] = str(error)
            return False
        except Exception as error:
            self._one_by_one(runs)
            if not any(self._place(run) in self.failures for run in runs):
                self.apart[kind] = f"its step cannot be batched: {error}"
            return True
        states = [_row(state, place) for place in range(len(runs))]
        share = (time.perf_counter() - began) / len(runs)
        for place, run in enumerate(runs):
            began = time.perf_counter()
            run.state = states[place]
            means = {name: float(sums[place]) / totals.count for name, sums in totals.sums.items()}
            try:
                run.end_epoch(passes, means, numbers[place])
            except Exception as error:
                self.failures[self._place(run)] = error
            run.seconds += share + time.perf_counter() - began
        self._stacked = states, state
        return True

    def _steps(self, runs: list[TrainingRun]) -> tuple[TrainState, list[Numbers], Totals, int]:
        """All steps of an epoch: the members' states and sums, stacked."""
        generators = [
            torch.Generator().manual_seed(derive_seed(run.seed, "epoch", run.epoch)) for run in runs
        ]
        numbers = [run.numbers_now() for run in runs]
        epochs = zip(
            *(run.windows(drawn) for run, drawn in zip(runs, generators, strict=True)), strict=True
        )
        state, totals, batched = self._stack(runs), Totals(), False
        for windows in epochs:
            step = _Step(runs, state, windows, numbers, generators)
            passed = self._passed.get(step.signature, 0)
            if passed is None:
                state, logs = step.one_by_one()
            elif passed < COMPARISONS:
                (state, logs), equal = step.compared()
                self._passed[step.signature] = passed + 1 if equal else None
                batched = batched or equal
            else:
                state, logs = step.together()
                batched = True
            totals.add(logs)
        if not batched:
            raise ApartError("no batch gives the same bits together as alone on this machine")
        return state, numbers, totals, runs[0].passes(windows[0])

    def _stack(self, runs: list[TrainingRun]) -> TrainState:
        if self._stacked is not None:
            states, stacked = self._stacked
            same = len(states) == len(runs)
            if same and all(run.state is state for run, state in zip(runs, states, strict=True)):
                return stacked
        stacked_now: TrainState = _stack([run.state for run in runs])
        return stacked_now

    def _place(self, run: TrainingRun) -> int:
        return next(place for place, other in enumerate(self.runs) if other is run)


class _Step:
    """One call of ``Method.steps`` for every member of a company."""

    def __init__(
        self,
        runs: list[TrainingRun],
        state: TrainState,
        windows: Sequence[list[Batch]],
        numbers: list[Numbers],
        generators: list[torch.Generator],
    ) -> None:
        self.runs, self.state, self.windows = runs, state, windows
        self.numbers, self.generators = numbers, generators
        flat = [tree_flatten(window) for window in windows]
        self.spec: TreeSpec = flat[0][1]
        if any(spec != self.spec for _, spec in flat):
            raise ApartError("its batches have different parts")
        self.leaves = [list(values) for values in zip(*(leaves for leaves, _ in flat), strict=True)]
        self.signature: Hashable = (company(runs[0])[0], len(runs), *map(_form, self.leaves))

    def together(self) -> Stepped:
        """Under vmap; what no member has of its own is not stacked."""
        method, learner = self.runs[0].method, self.runs[0].learner
        stacked: list[Tensor] = []
        found: dict[tuple[int, ...], int] = {}  # a batch that is used T times is stacked once
        places: list[int | None] = []
        for values in self.leaves:
            if not isinstance(values[0], Tensor) or all(value is values[0] for value in values):
                places.append(None)
                continue
            place = found.setdefault(tuple(map(id, values)), len(stacked))
            if place == len(stacked):
                stacked.append(torch.stack(values))
            places.append(place)

        def step(state: TrainState, own: list[Tensor], numbers: Numbers) -> Stepped:
            leaves = [
                values[0] if place is None else own[place]
                for place, values in zip(places, self.leaves, strict=True)
            ]
            batches: list[Batch] = tree_unflatten(leaves, self.spec)
            # Draws are made outside; whoever draws in here is found out by vmap.
            return method.steps(learner, state, batches, numbers, None)  # type: ignore[arg-type]

        numbers = {name: torch.stack([n[name] for n in self.numbers]) for name in self.numbers[0]}
        with SteadyLoss():
            stepped: Stepped = torch.vmap(step, randomness="error")(self.state, stacked, numbers)
        return stepped

    def one_by_one(self) -> Stepped:
        """As each member's ``run_epoch`` would."""
        results = [
            run.method.steps(run.learner, _row(self.state, place), window, numbers, generator)
            for place, (run, window, numbers, generator) in enumerate(
                zip(self.runs, self.windows, self.numbers, self.generators, strict=True)
            )
        ]
        stepped: Stepped = _stack(results)
        return stepped

    def compared(self) -> tuple[Stepped, bool]:
        """The step as each member takes it alone, and whether it is the same together."""
        with Unsteady(len(self.runs)) as unsteady:
            together = self.together()
        alone = self.one_by_one()
        return alone, not unsteady.found and same_bits(together, alone)


Company = tuple[Hashable, int, str]


def company(run: TrainingRun) -> Company:
    """What members that train together have in common: their kind, epoch and phase."""
    values = run.method.hyperparameters.model_dump()
    discrete = tuple(
        (name, value)
        for name, value in values.items()
        if not isinstance(value, float) or name in run.method.read_by_the_host
    )
    parts = [part for part in (run.train, run.held_out) if part is not None]
    rows = tuple((part.inputs.shape, part.inputs.dtype) for part in parts)
    kind = (type(run.method), discrete, run.architecture, rows, run.config, str(run.device))
    return kind, run.epoch, run.method.phase(run.epoch / run.config.epochs)


def same_bits(one: Any, other: Any) -> bool:
    """Whether two results have the same structure and numbers; NaN is NaN."""
    (ones, spec), (others, other_spec) = tree_flatten(one), tree_flatten(other)
    return bool(spec == other_spec) and all(map(_equal, ones, others))


def _equal(one: Tensor, other: Tensor) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return torch.equal(one, other) or bool(
        torch.isclose(one, other, rtol=0, atol=0, equal_nan=True).all()
    )


def _alone(run: TrainingRun) -> str:
    if run.config.mixed_precision:
        return "mixed precision"
    if run.device.type == "cpu" and torch.get_num_threads() > 1:
        return "several threads, which divide a cohort's tensors otherwise than a single member's"
    return run.method.alone


def _form(values: list[Any]) -> Hashable:
    first = values[0]
    if isinstance(first, Tensor):
        shared = all(value is first for value in values)
        return first.shape, first.dtype, shared
    return str(first)


def _stack(values: Sequence[Any]) -> Any:
    return tree_map(lambda *leaves: torch.stack(leaves), *values)


def _row(values: Any, place: int) -> Any:
    """One member's part as tensors of their own: a stored view would store everybody's."""
    return tree_map(lambda leaf: leaf[place].clone(), values)


def _share_rows(runs: list[TrainingRun]) -> None:
    """Let members with equal rows hold the same tensors, which are then not stacked."""
    for name in ("train", "validation", "held_out"):
        held: list[Part | None] = []
        for run in runs:
            part = getattr(run, name)
            known = next((other for other in held if _same_part(part, other)), None)
            if known is None:
                held.append(part)
            else:
                setattr(run, name, known)


def _same_part(one: Part | None, other: Part | None) -> bool:
    if one is None or other is None:
        return one is other
    (ones, spec), (others, other_spec) = tree_flatten(one), tree_flatten(other)
    return bool(spec == other_spec) and all(
        _equal(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else a is b
        for a, b in zip(ones, others, strict=True)
    )
