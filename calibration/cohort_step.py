"""One step of many networks at once, and the same step of each alone, for comparison."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_map, tree_unflatten

from calibration.batches import stacked_batches
from calibration.methods import Batch, Numbers, TrainState
from calibration.steady import SteadyLoss, Unsteady
from calibration.training import TrainingRun

Logs = dict[str, Tensor]
Stepped = tuple[TrainState, Logs]


class ApartError(Exception):
    """Raised when a step cannot be taken together; the message gives the reason."""


class Window:
    """The batches of one call of ``Method.steps`` for every member of a company.

    ``leaves`` are the batches' values: stacked if ``own``, otherwise shared by all members.
    """

    def __init__(self, members: int, leaves: list[Any], own: list[bool], spec: TreeSpec) -> None:
        self.members, self.leaves, self.own, self.spec = members, leaves, own, spec

    @classmethod
    def of(cls, windows: Sequence[list[Batch]]) -> Window:
        """Stack tensors that are not shared; a batch that is used T times is stacked once."""
        flat = [tree_flatten(window) for window in windows]
        if any(spec != flat[0][1] for _, spec in flat):
            raise ApartError("its batches have different parts")
        found: dict[tuple[int, ...], Tensor] = {}
        leaves: list[Any] = []
        own: list[bool] = []
        for values in zip(*(leaves for leaves, _ in flat), strict=True):
            first = values[0]
            own.append(isinstance(first, Tensor) and any(v is not first for v in values))
            ids = tuple(map(id, values))
            if own[-1] and ids not in found:
                found[ids] = torch.stack(values)
            leaves.append(found[ids] if own[-1] else first)
        return cls(len(windows), leaves, own, flat[0][1])

    @property
    def form(self) -> Hashable:
        """What determines which kernels a step uses."""
        return tuple(
            (leaf.shape, leaf.dtype, own) if isinstance(leaf, Tensor) else str(leaf)
            for leaf, own in zip(self.leaves, self.own, strict=True)
        )

    def batches(self, leaves: list[Any]) -> list[Batch]:
        """The batches that have these values."""
        made: list[Batch] = tree_unflatten(leaves, self.spec)
        return made

    def member(self, place: int) -> list[Batch]:
        """One member's batches."""
        pairs = zip(self.leaves, self.own, strict=True)
        return self.batches([leaf[place] if own else leaf for leaf, own in pairs])

    def stacked(self) -> list[Batch]:
        """The batches with everything stacked; shared tensors are expanded, not copied."""

        def whole(leaf: Any, own: bool) -> Any:
            common = isinstance(leaf, Tensor) and not own
            return leaf.expand(self.members, *leaf.shape) if common else leaf

        return self.batches(list(map(whole, self.leaves, self.own)))


def windows(runs: list[TrainingRun], generators: list[torch.Generator]) -> Iterator[Window]:
    """The next epoch's batches of runs of one kind."""
    if all(run.plain for run in runs):
        for batch, own in stacked_batches(runs, generators):
            leaves, spec = tree_flatten([batch])
            tensors = [own and isinstance(leaf, Tensor) for leaf in leaves]
            yield Window(len(runs), leaves, tensors, spec)
        return
    epochs = (run.windows(drawn) for run, drawn in zip(runs, generators, strict=True))
    yield from map(Window.of, zip(*epochs, strict=True))


class CohortStep:
    """One call of ``Method.steps`` for every member of a company."""

    def __init__(
        self,
        runs: list[TrainingRun],
        state: TrainState,
        window: Window,
        numbers: Numbers,
        generators: list[torch.Generator],
    ) -> None:
        self.runs, self.state, self.window = runs, state, window
        self.numbers, self.generators = numbers, generators

    def together(self) -> Stepped:
        """By ``Method.steps_together``, or under vmap, where shared tensors are not stacked."""
        method, learner, window = self.runs[0].method, self.runs[0].learner, self.window
        found = method.steps_together(learner, self.state, window.stacked(), self.numbers)
        if found is not None:
            return found

        def step(state: TrainState, own: list[Tensor], numbers: Numbers) -> Stepped:
            mine = iter(own)
            leaves = [
                next(mine) if is_own else leaf
                for leaf, is_own in zip(window.leaves, window.own, strict=True)
            ]
            # Random numbers are drawn outside; vmap rejects a step that draws in here.
            return method.steps(learner, state, window.batches(leaves), numbers, None)  # type: ignore[arg-type]

        own = [leaf for leaf, is_own in zip(window.leaves, window.own, strict=True) if is_own]
        with SteadyLoss():
            stepped: Stepped = torch.vmap(step, randomness="error")(self.state, own, self.numbers)
        return stepped

    def one_by_one(self) -> Stepped:
        """Take the step as each member's ``run_epoch`` would."""
        results = [
            run.method.steps(
                run.learner,
                member_state(self.state, place),
                self.window.member(place),
                {name: values[place] for name, values in self.numbers.items()},
                generator,
            )
            for place, (run, generator) in enumerate(zip(self.runs, self.generators, strict=True))
        ]
        stepped: Stepped = stack(results)
        return stepped

    def compared(self) -> tuple[Stepped, bool]:
        """The step as each member takes it alone, and whether taking it together gives the same."""
        with Unsteady(len(self.runs)) as unsteady:
            together = self.together()
        alone = self.one_by_one()
        return alone, not unsteady.found and same_bits(together, alone)


def same_bits(one: Any, other: Any) -> bool:
    """Whether two results have the same structure and numbers; NaN equals NaN."""
    (ones, spec), (others, other_spec) = tree_flatten(one), tree_flatten(other)
    return bool(spec == other_spec) and all(map(equal_tensors, ones, others))


def equal_tensors(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same type, shape and numbers; NaN equals NaN."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return torch.equal(one, other) or bool(
        torch.isclose(one, other, rtol=0, atol=0, equal_nan=True).all()
    )


def stack(values: Sequence[Any]) -> Any:
    """Combine trees of tensors into one whose tensors are stacked along a first dimension."""
    return tree_map(lambda *leaves: torch.stack(leaves), *values)


def member_state(state: TrainState, place: int) -> TrainState:
    """One member's state, copied: saving a view would save the states of all members."""

    def taken(values: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: value[place].clone() for name, value in values.items()}

    parameters, *others = state
    return TrainState(parameters[place].clone(), *map(taken, others))
