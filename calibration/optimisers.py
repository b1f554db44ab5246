"""Optimisers as pure functions of one flat parameter vector.

``update`` takes values and returns values, changes nothing in place and is
differentiable in every argument, so that bilevel methods can differentiate through a
training step and many trials can be stepped at once under ``torch.vmap``. Learning rate
and weight decay enter as tensors for the same reason. torch.optim is the oracle of the
tests; its classes cannot serve here because they mutate parameters in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

OptimiserState = dict[str, Tensor]

Pullback = Callable[[Tensor, OptimiserState], tuple[Tensor, Tensor, OptimiserState]]
"""Cotangents of (new parameters, new state) → those of (parameters, gradient, old state).

Counters in the state are constants: they need no cotangent and get none.
"""


class Optimiser(Protocol):
    """What a training step needs of an optimiser.

    ``version`` is part of every trial's key: raise it when a change alters a step.
    """

    version: ClassVar[int]

    def initial(self, parameters: Tensor) -> OptimiserState:
        """The state before the first step."""

    def update(
        self,
        parameters: Tensor,
        gradient: Tensor,
        state: OptimiserState,
        *,
        lr: Tensor,
        weight_decay: Tensor,
    ) -> tuple[Tensor, OptimiserState]:
        """One step: the new parameters and the new state."""

    def linearise(
        self,
        parameters: Tensor,
        gradient: Tensor,
        state: OptimiserState,
        *,
        lr: float,
        weight_decay: float,
    ) -> tuple[Tensor, OptimiserState, Pullback]:
        """``update`` of plain values, and the adjoint of its derivative there.

        What autograd would do through ``update``, in half of the operations and without a graph
        of them. Nothing here is to be differentiated again, so numbers are plain.
        """


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba 2015) with L2 weight decay added to the gradient.

    ``eps_root`` is added under the square root: at 0 the root's slope is infinite and
    one dead ReLU turns a hypergradient into NaN. 1e-16 (``eps`` squared) keeps it finite
    and changes a step only where gradients are themselves below about ``eps``.
    """

    version: ClassVar[int] = 1
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    eps_root: float = 1e-16

    def initial(self, parameters: Tensor) -> OptimiserState:
        """First and second moments of zero."""
        return {
            "step": torch.zeros((), dtype=parameters.dtype, device=parameters.device),
            "mean": torch.zeros_like(parameters),
            "square": torch.zeros_like(parameters),
        }

    def update(
        self,
        parameters: Tensor,
        gradient: Tensor,
        state: OptimiserState,
        *,
        lr: Tensor,
        weight_decay: Tensor,
    ) -> tuple[Tensor, OptimiserState]:
        """θ ← θ − lr · m̂ / (√(v̂ + eps_root) + eps)."""
        gradient = torch.addcmul(gradient, weight_decay, parameters)
        step = state["step"] + 1
        mean = torch.lerp(state["mean"], gradient, 1 - self.beta1)
        square = torch.lerp(state["square"], gradient * gradient, 1 - self.beta2)
        unbiased_mean = mean / (1 - self.beta1**step)
        unbiased_square = square / (1 - self.beta2**step)
        direction = unbiased_mean / ((unbiased_square + self.eps_root).sqrt() + self.eps)
        return parameters - lr * direction, {"step": step, "mean": mean, "square": square}

    def linearise(
        self,
        parameters: Tensor,
        gradient: Tensor,
        state: OptimiserState,
        *,
        lr: float,
        weight_decay: float,
    ) -> tuple[Tensor, OptimiserState, Pullback]:
        """With r = √(v̂ + eps_root) and s = r + eps: ∂θ/∂m̂ = −lr/s, ∂θ/∂v̂ = lr · m̂/(2 r s²)."""
        step = state["step"] + 1
        bias1, bias2 = 1 - self.beta1 ** float(step), 1 - self.beta2 ** float(step)
        decayed = torch.add(gradient, parameters, alpha=weight_decay)
        mean = torch.lerp(state["mean"], decayed, 1 - self.beta1)
        square = torch.lerp(state["square"], decayed * decayed, 1 - self.beta2)
        root = (square / bias2).add_(self.eps_root).sqrt_()
        scale = root + self.eps
        moved = torch.addcdiv(parameters, mean, scale, value=-lr / bias1)

        def pullback(
            moved_bar: Tensor, state_bar: OptimiserState
        ) -> tuple[Tensor, Tensor, OptimiserState]:
            share = moved_bar / scale
            mean_bar = torch.add(state_bar["mean"], share, alpha=-lr / bias1)
            square_bar = torch.addcdiv(
                state_bar["square"], share * mean, root * scale, value=lr / (2 * bias1 * bias2)
            )
            gradient_bar = torch.addcmul(
                (1 - self.beta1) * mean_bar, decayed, square_bar, value=2 * (1 - self.beta2)
            )
            parameters_bar = torch.add(moved_bar, gradient_bar, alpha=weight_decay)
            before_bar = {"mean": self.beta1 * mean_bar, "square": self.beta2 * square_bar}
            return parameters_bar, gradient_bar, before_bar

        return moved, {"step": step, "mean": mean, "square": square}, pullback


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent with heavy-ball momentum, as torch.optim.SGD defines it."""

    version: ClassVar[int] = 1
    momentum: float = 0.9
    nesterov: bool = False

    def initial(self, parameters: Tensor) -> OptimiserState:
        """A velocity of zero."""
        return {"velocity": torch.zeros_like(parameters)}

    def update(
        self,
        parameters: Tensor,
        gradient: Tensor,
        state: OptimiserState,
        *,
        lr: Tensor,
        weight_decay: Tensor,
    ) -> tuple[Tensor, OptimiserState]:
        """v ← momentum · v + g;  θ ← θ − lr · v."""
        gradient = torch.addcmul(gradient, weight_decay, parameters)
        velocity = self.momentum * state["velocity"] + gradient
        direction = gradient + self.momentum * velocity if self.nesterov else velocity
        return parameters - lr * direction, {"velocity": velocity}

    def linearise(
        self,
        parameters: Tensor,
        gradient: Tensor,
        state: OptimiserState,
        *,
        lr: float,
        weight_decay: float,
    ) -> tuple[Tensor, OptimiserState, Pullback]:
        """The update is linear: its adjoint needs cotangents only."""
        decayed = torch.add(gradient, parameters, alpha=weight_decay)
        velocity = torch.add(decayed, state["velocity"], alpha=self.momentum)
        direction = decayed + self.momentum * velocity if self.nesterov else velocity
        moved = torch.add(parameters, direction, alpha=-lr)

        def pullback(
            moved_bar: Tensor, state_bar: OptimiserState
        ) -> tuple[Tensor, Tensor, OptimiserState]:
            direction_bar = -lr * moved_bar
            if self.nesterov:
                velocity_bar = state_bar["velocity"] + self.momentum * direction_bar
                gradient_bar = velocity_bar + direction_bar
            else:
                gradient_bar = velocity_bar = state_bar["velocity"] + direction_bar
            parameters_bar = torch.add(moved_bar, gradient_bar, alpha=weight_decay)
            return parameters_bar, gradient_bar, {"velocity": self.momentum * velocity_bar}

        return moved, {"velocity": velocity}, pullback
