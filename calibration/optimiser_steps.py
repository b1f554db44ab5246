"""Wrappers around an optimiser's step: gradient clipping, weight averaging, two learning rates.

Each wraps an optimiser and is one itself, transparent to methods, bilevel engines and cohorts.
The norm is that of one network: under ``torch.vmap`` every member of a cohort has its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor

from calibration.optimisers import (
    Cotangents,
    Linearised,
    Moved,
    Optimiser,
    OptimiserState,
    Pullback,
    Rates,
)

AVERAGE = "average"
"""The key of the averaged weights in an optimiser's state."""
_SMALL = 1e-6
"""Added to the norm, as in torch's clip_grad_norm_."""


@dataclass(frozen=True)
class Clipped:
    """Clips gradients to the norm ``norm``, before any weight decay."""

    version: ClassVar[int] = 1
    optimiser: Optimiser
    norm: float

    def initial(self, parameters: Tensor) -> OptimiserState:
        """The initial state of the wrapped optimiser."""
        return self.optimiser.initial(parameters)

    def update(
        self, parameters: Tensor, gradient: Tensor, state: OptimiserState, **rates: Unpack[Rates]
    ) -> Moved:
        """The wrapped optimiser's step along g · min(1, norm / (‖g‖ + 1e-6))."""
        return self.optimiser.update(parameters, self._clipped(gradient), state, **rates)

    def linearise(
        self, parameters: Tensor, gradient: Tensor, state: OptimiserState, **rates: Unpack[Rates]
    ) -> Linearised:
        """The wrapped optimiser's adjoint, then that of the clipping."""
        with torch.enable_grad():
            found: Any = torch.func.vjp(self._clipped, gradient)
        clipped, adjoint = found
        moved, after, inner = self.optimiser.linearise(parameters, clipped.detach(), state, **rates)

        def pullback(moved_bar: Tensor, state_bar: OptimiserState) -> Cotangents:
            parameters_bar, clipped_bar, before_bar = inner(moved_bar, state_bar)
            (gradient_bar,) = adjoint(clipped_bar)
            return parameters_bar, gradient_bar, before_bar

        return moved, after, pullback

    def _clipped(self, gradient: Tensor) -> Tensor:
        # The square root has an infinite slope at 0: a zero gradient must not become NaN.
        square = (gradient * gradient).sum(-1)
        length = torch.where(square > 0, square, torch.ones_like(square)).sqrt()
        length = torch.where(square > 0, length, torch.zeros_like(length))
        return gradient * (self.norm / (length + _SMALL)).clamp(max=1.0)


@dataclass(frozen=True)
class Averaged:
    """Maintains an exponential moving average of the weights, starting at their initial values.

    Training continues with the weights; their average is what is evaluated (``averaged``).
    """

    version: ClassVar[int] = 1
    optimiser: Optimiser
    decay: float

    def initial(self, parameters: Tensor) -> OptimiserState:
        """The wrapped optimiser's initial state, and an average that starts at the parameters."""
        return self.optimiser.initial(parameters) | {AVERAGE: parameters.clone()}

    def update(
        self, parameters: Tensor, gradient: Tensor, state: OptimiserState, **rates: Unpack[Rates]
    ) -> Moved:
        """The wrapped optimiser's step, then average ← decay · average + (1 − decay) · θ."""
        moved, after = self.optimiser.update(parameters, gradient, _without(state), **rates)
        return moved, after | {AVERAGE: torch.lerp(state[AVERAGE], moved, 1 - self.decay)}

    def linearise(
        self, parameters: Tensor, gradient: Tensor, state: OptimiserState, **rates: Unpack[Rates]
    ) -> Linearised:
        """The wrapped optimiser's adjoint; the average is linear in itself and the new θ."""
        moved, after, inner = self.optimiser.linearise(
            parameters, gradient, _without(state), **rates
        )

        def pullback(moved_bar: Tensor, state_bar: OptimiserState) -> Cotangents:
            average_bar = state_bar[AVERAGE]
            parameters_bar, gradient_bar, before_bar = inner(
                moved_bar + (1 - self.decay) * average_bar, _without(state_bar)
            )
            return parameters_bar, gradient_bar, before_bar | {AVERAGE: self.decay * average_bar}

        average = torch.lerp(state[AVERAGE], moved, 1 - self.decay)
        return moved, after | {AVERAGE: average}, pullback


@dataclass(frozen=True)
class TwoRates:
    """Trains the first ``size`` parameters, a backbone's, at ``rate`` times the learning rate.

    Both groups have their own state, like torch.optim's parameter groups. At a rate of 0, the
    first group and its state do not change.
    """

    version: ClassVar[int] = 1
    optimiser: Optimiser
    size: int
    rate: float

    def initial(self, parameters: Tensor) -> OptimiserState:
        """The wrapped optimiser's initial state of each group."""
        groups = self._groups(parameters)
        return _joined(*(self.optimiser.initial(group.clone()) for group in groups))

    def update(
        self, parameters: Tensor, gradient: Tensor, state: OptimiserState, **rates: Unpack[Rates]
    ) -> Moved:
        """The wrapped optimiser's step of each group."""
        moved: list[Tensor] = []
        after: list[OptimiserState] = []
        for values, slope, known, own in self._steps(parameters, gradient, state, rates):
            step = self.optimiser.update(values, slope, known, **own) if own else (values, known)
            moved.append(step[0])
            after.append(step[1])
        return torch.cat(moved), _joined(*after)

    def linearise(
        self, parameters: Tensor, gradient: Tensor, state: OptimiserState, **rates: Unpack[Rates]
    ) -> Linearised:
        """The wrapped optimiser's adjoint of each group."""
        moved: list[Tensor] = []
        after: list[OptimiserState] = []
        adjoints: list[Pullback] = []
        for values, slope, known, own in self._steps(parameters, gradient, state, rates):
            step: Linearised = values, known, _unmoved
            if own:
                step = self.optimiser.linearise(values, slope, known, **own)
            moved.append(step[0])
            after.append(step[1])
            adjoints.append(step[2])

        def pullback(moved_bar: Tensor, state_bar: OptimiserState) -> Cotangents:
            bars = [
                adjoint(bar, _of_group(state_bar, group))
                for adjoint, bar, group in zip(
                    adjoints, self._groups(moved_bar), _GROUPS, strict=True
                )
            ]
            values, slopes, states = zip(*bars, strict=True)
            return torch.cat(values), torch.cat(slopes), _joined(*states)

        return torch.cat(moved), _joined(*after), pullback

    def _steps(
        self, parameters: Tensor, gradient: Tensor, state: OptimiserState, rates: Rates
    ) -> Iterator[tuple[Tensor, Tensor, OptimiserState, Rates | None]]:
        """Per group: parameters, gradient, state, and rates (None if it does not move)."""
        slower: Rates | None = {**rates, "lr": rates["lr"] * self.rate} if self.rate else None
        return zip(
            self._groups(parameters),
            self._groups(gradient),
            (_of_group(state, group) for group in _GROUPS),
            (slower, rates),
            strict=True,
        )

    def _groups(self, values: Tensor) -> tuple[Tensor, ...]:
        groups: tuple[Tensor, ...] = values.split((self.size, values.shape[-1] - self.size), dim=-1)
        return groups


_GROUPS = ("backbone", "head")


def _joined(*states: OptimiserState) -> OptimiserState:
    return {
        f"{group}.{name}": value
        for group, state in zip(_GROUPS, states, strict=True)
        for name, value in state.items()
    }


def _of_group(state: OptimiserState, group: str) -> OptimiserState:
    start = f"{group}."
    return {n.removeprefix(start): value for n, value in state.items() if n.startswith(start)}


def _unmoved(moved_bar: Tensor, state_bar: OptimiserState) -> Cotangents:
    return moved_bar, torch.zeros_like(moved_bar), state_bar


def averaged(parameters: Tensor, state: OptimiserState) -> Tensor:
    """The weights to evaluate: their average if the optimiser maintains one."""
    return state.get(AVERAGE, parameters)


def _without(state: OptimiserState) -> OptimiserState:
    return {name: value for name, value in state.items() if name != AVERAGE}
