"""Train many networks of one shape at once, each bit-identical to training it alone.

A cohort stacks its members' states and takes a method's step under ``torch.vmap``: for small
networks and batches, most of a step's time is the overhead of calling operations, which K members
share. Members are ordinary ``TrainingRun``s: each draws from its own generator and is evaluated
on its own, and its ``state_dict`` does not depend on which members it was trained with.

**Batching changes no number.** Whether a kernel rounds a member's values as it does alone
depends on the kernel, the shapes and the processor: small batched products, and powers or
sigmoids of vectors that do not fill a register, differ (``calibration/steady.py``). So the
first few times that a batch of a given shape occurs in a company of a given size, every member's
step is also taken alone. If it uses such a kernel, or a single bit differs, batches of that
shape are trained one by one from then on, the others together. On CUDA, too, only steps that
compared equal are taken together.

**Nor does it cost time, if timed.** With ``timed``, the first epochs alternate between both ways,
and the rest are trained in the way that was faster here (``calibration/cohort_times.py``).
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

from calibration.cohort_step import (
    ApartError,
    CohortStep,
    equal_tensors,
    member_state,
    stack,
    windows,
)
from calibration.cohort_times import EpochTimes, clock, times_of
from calibration.cohort_validation import UNBATCHED, measured_by_all, measured_equally
from calibration.data import Part
from calibration.denormals import flushed_denormals
from calibration.methods import Numbers, TrainState
from calibration.seeds import derive_seed
from calibration.training import Totals, TrainingRun
from calibration.validation import Measured

COMPARISONS = 3
"""How many steps of one shape are compared before further ones are trusted."""
PASSED: dict[Hashable, int | None] = {}
"""How many comparisons have passed in this process; None: a difference was found."""
CACHE = 4_000_000
"""Bytes of hidden layers that are trained at once: more would spill to main memory."""
MEMBERS_AT_LEAST = 4
"""For networks too large for ``CACHE``: saving calls outweighs spilling to main memory."""


class Cohort:
    """Trainings that go through their epochs together as long as that changes no number.

    Any ``TrainingRun``s may be given: those that agree in all but real-valued hyperparameters,
    seeds and rows, and are at the same epoch, train together, the rest one by one. A member
    that is done or has raised takes part in no further epoch; the others are not affected.
    ``failures`` holds the members' exceptions; ``why_apart`` gives the reason why some train
    alone. With ``timed``, members train together only if that is faster.
    """

    def __init__(self, runs: Iterable[TrainingRun], *, timed: bool = False) -> None:
        self.runs = list(runs)
        self.timed = timed
        self.failures: dict[int, Exception] = {}
        self.apart: dict[Hashable, str] = {}
        self._measured_apart: dict[Hashable, str] = {}
        self._comparing = False
        self._places = {id(run): place for place, run in enumerate(self.runs)}
        self._kinds = {id(run): company(run)[0] for run in self.runs}
        self._stacked: dict[int, tuple[list[TrainState], TrainState]] = {}
        _share_rows(self.runs)

    @property
    def active(self) -> list[TrainingRun]:
        """The members to be trained in the next epoch."""
        return [
            run for place, run in enumerate(self.runs) if not (run.done or place in self.failures)
        ]

    @flushed_denormals()
    def run_epoch(self) -> None:
        """Train one epoch of every active member; see ``TrainingRun.run_epoch``."""
        companies: dict[Company, list[TrainingRun]] = {}
        for run in self.active:
            shared = self._kinds[id(run)], run.epoch, _phase(run)
            companies.setdefault(shared, []).append(run)
        for members in companies.values():
            for runs in _divided(members):
                self._train(runs)

    def why_apart(self, run: TrainingRun) -> str:
        """Why a member is not trained or evaluated together with others; empty if it is."""
        kind = self._kinds[id(run)]
        times = self._times([other for other in self.active if self._kinds[id(other)] == kind])
        slower = times.reason if times is not None else ""
        return self.apart.get(kind) or slower or self._measured_apart.get(kind, "")

    def _train(self, runs: list[TrainingRun]) -> None:
        """Train one epoch of members of one company, timed if requested."""
        kind = self._kinds[id(runs[0])]
        if len(runs) == 1 or kind in self.apart:
            self._one_by_one(runs)
            return
        times, self._comparing, began = self._times(runs), False, clock(runs[0].device)
        together = (times is None or times.together_next) and self._together(runs)
        if not together:
            self._one_by_one(runs)
        unclear = self._comparing or kind in self.apart or not all(map(self._sound, runs))
        if times is not None and not unclear:
            seconds = (clock(runs[0].device) - began) / len(runs)
            looked = "validation/nll" in runs[0].curve[-1]
            times.add(seconds, together=together, looked=looked)

    def _times(self, runs: list[TrainingRun]) -> EpochTimes | None:
        if not self.timed or not runs:
            return None
        return times_of((self._kinds[id(runs[0])], _phase(runs[0])), len(_divided(runs)[0]))

    def _one_by_one(self, runs: Sequence[TrainingRun]) -> None:
        for run in runs:
            with self._failing(run):
                run.run_epoch()

    def _together(self, runs: list[TrainingRun]) -> bool:
        """Train one epoch of members of one company; False, and no state changed, if impossible.

        If a step raises, the members are trained one by one, which shows whose error it is.
        """
        began = time.perf_counter()
        kind = self._kinds[id(runs[0])]
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
                # The first sentence only: the rest of torch's message addresses its developers.
                what = str(error).partition(". ")[0]
                self.apart[kind] = f"its step cannot be batched: {what}"
            return True
        states = [member_state(state, place) for place in range(len(runs))]
        sums = {name: values.tolist() for name, values in totals.sums.items()}
        for place, run in enumerate(runs):
            run.state = states[place]
            with self._failing(run):
                run.adapt(passes, numbers[place])
        found = self._measured([run for run in runs if self._sound(run)], passes)
        share = (time.perf_counter() - began) / len(runs)
        for place, run in enumerate(runs):
            began = time.perf_counter()
            means = {name: values[place] / totals.count for name, values in sums.items()}
            if self._sound(run):
                with self._failing(run):
                    run.record(passes, means, numbers[place], found.get(id(run)))
            run.seconds += share + time.perf_counter() - began
        self._stacked[id(runs[0])] = states, state
        return True

    def _steps(self, runs: list[TrainingRun]) -> tuple[TrainState, list[Numbers], Totals, int]:
        """Take all steps of an epoch: the members' states and sums, stacked."""
        generators = [
            torch.Generator().manual_seed(derive_seed(run.seed, "epoch", run.epoch)) for run in runs
        ]
        numbers = [run.numbers_now() for run in runs]
        stacked = {name: torch.stack([n[name] for n in numbers]) for name in numbers[0]}
        state, totals, batched = self._stack(runs), Totals(), False
        kind = self._kinds[id(runs[0])]
        for window in windows(runs, generators):
            step = CohortStep(runs, state, window, stacked, generators)
            signature = (kind, len(runs), window.form)
            passed = PASSED.get(signature, 0)
            if passed is None:
                state, logs = step.one_by_one()
            elif passed < COMPARISONS:
                self._comparing = True
                (state, logs), equal = step.compared()
                PASSED[signature] = passed + 1 if equal else None
                batched = batched or equal
            else:
                state, logs = step.together()
                batched = True
            totals.add(logs)
        if not batched:
            raise ApartError("no batch gives the same bits together as alone on this machine")
        return state, numbers, totals, runs[0].passes(window.member(0))

    def _measured(self, runs: list[TrainingRun], passes: int) -> dict[int, Measured]:
        """The validation results of each member, by its ``id``, if an evaluation is due."""
        if not runs or not runs[0].due(passes):
            return {}
        kind = self._kinds[id(runs[0])]
        signature = (kind, len(runs), runs[0].validation.inputs.shape)
        passed = PASSED.get(signature, 0) if len(runs) > 1 else None
        error: Exception | None = None
        if passed is not None and passed >= COMPARISONS:
            try:
                return dict(zip(map(id, runs), measured_by_all(runs), strict=True))
            except Exception as raised:  # evaluating one by one will show whose error it is
                error = raised
        alone: dict[int, Measured] = {}
        for run in runs:
            with self._failing(run):
                alone[id(run)] = run.measure()
        if passed is None or len(alone) < len(runs):
            return alone
        self._comparing = True
        try:
            if error is not None:
                raise error
            PASSED[signature] = passed + 1 if measured_equally(runs, alone) else None
        except UNBATCHED as reason:
            PASSED[signature] = None
            self._measured_apart[kind] = f"validation rows are measured one by one: {reason}"
        return alone

    def _stack(self, runs: list[TrainingRun]) -> TrainState:
        if id(runs[0]) in self._stacked:
            states, stacked = self._stacked.pop(id(runs[0]))
            same = len(states) == len(runs)
            if same and all(run.state is state for run, state in zip(runs, states, strict=True)):
                return stacked
        stacked_now: TrainState = stack([run.state for run in runs])
        return stacked_now

    def _place(self, run: TrainingRun) -> int:
        return self._places[id(run)]

    def _sound(self, run: TrainingRun) -> bool:
        return self._place(run) not in self.failures

    @contextmanager
    def _failing(self, run: TrainingRun) -> Iterator[None]:
        """Record a member's exception (a user's method may raise anything); others continue."""
        try:
            yield
        except Exception as error:
            self.failures[self._place(run)] = error


Company = tuple[Hashable, int, str]


def company(run: TrainingRun) -> Company:
    """What members that train together have in common: kind, epoch and phase."""
    discrete = tuple(run.method.shared.items())
    parts = [part for part in (run.train, run.held_out) if part is not None]
    rows = tuple((part.inputs.shape, part.inputs.dtype) for part in parts)
    kind = (type(run.method), discrete, run.architecture, rows, run.config, str(run.device))
    return kind, run.epoch, _phase(run)


def _phase(run: TrainingRun) -> str:
    return run.method.phase(run.epoch / run.config.epochs)


def _divided(runs: list[TrainingRun]) -> list[list[TrainingRun]]:
    """Split into groups of nearly equal size whose hidden layers fit into the processor's cache."""
    dense, size = runs[0].learner.dense, runs[0].config.batch_size
    if dense is None or runs[0].device.type != "cpu":
        return [runs]
    samples = len(runs[0].train.labels)
    rows = samples if size == "full" else min(size, samples)
    # The values of every hidden layer, and the gradients of one layer at a time; for all steps of
    # a window, since a method that takes several at once differentiates through them.
    hidden = dense.widths[1:-1]
    each = 4 * rows * (sum(hidden) + max(hidden, default=0)) * runs[0].method.window
    most = max(MEMBERS_AT_LEAST, CACHE // max(1, each))
    groups = -(-len(runs) // most)
    return [runs[place::groups] for place in range(groups)]


def _alone(run: TrainingRun) -> str:
    if run.config.mixed_precision:
        return "mixed precision"
    if run.device.type == "cpu" and torch.get_num_threads() > 1:
        return "several threads, which divide a cohort's tensors differently from a single member's"
    if run.train_transform is not None:
        return "a train_transform, which draws from torch's own generator"
    return run.method.alone


def _share_rows(runs: list[TrainingRun]) -> None:
    """Let members with equal rows share their tensors, which are then not stacked."""
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
        a is b or (isinstance(a, Tensor) and isinstance(b, Tensor) and equal_tensors(a, b))
        for a, b in zip(ones, others, strict=True)
    )
