"""Optimisers as pure functions of one flat parameter vector.

``update`` takes values and returns values, changes nothing in place and is
differentiable in every argument, so that bilevel methods can differentiate through a
training step and many trials can be stepped at once under ``torch.vmap``. Learning rate
and weight decay enter as tensors for the same reason. torch.optim is the oracle of the
tests; its classes cannot serve here because they mutate parameters in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

OptimiserState = dict[str, Tensor]


class Optimiser(Protocol):
    """What a training step needs of an optimiser."""

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

    def pullback(
        self,
        parameters: Tensor,
        gradient: Tensor,
        after: OptimiserState,
        new_parameters_bar: Tensor,
        after_bar: OptimiserState,
        *,
        lr: float,
        weight_decay: float,
    ) -> tuple[Tensor, Tensor, OptimiserState]:
        """The adjoint of ``update``: cotangents of (parameters, gradient, state before).

        ``parameters`` and ``gradient`` are what ``update`` was given, ``after`` the state it
        returned; the arguments named ``bar`` are the cotangents of its two results. It gives
        what autograd would give through ``update``, in a third of the operations and without
        their graph; nobody differentiates it, so numbers are plain. Counters are constants
        here: their cotangents pass through unchanged.
        """


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba 2015) with L2 weight decay added to the gradient.

    ``eps_root`` is added under the square root: at 0 the root's slope is infinite and
    one dead ReLU turns a hypergradient into NaN. 1e-16 (``eps`` squared) keeps it finite
    and changes a step only where gradients are themselves below about ``eps``.
    """

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

    def pullback(
        self,
        parameters: Tensor,
        gradient: Tensor,
        after: OptimiserState,
        new_parameters_bar: Tensor,
        after_bar: OptimiserState,
        *,
        lr: float,
        weight_decay: float,
    ) -> tuple[Tensor, Tensor, OptimiserState]:
        """With r = √(v̂ + eps_root) and s = r + eps: ∂θ/∂m̂ = −lr/s, ∂θ/∂v̂ = lr · m̂/(2 r s²)."""
        step = float(after["step"])
        bias1, bias2 = 1 - self.beta1**step, 1 - self.beta2**step
        root = (after["square"] / bias2).add_(self.eps_root).sqrt_()
        scale = root + self.eps
        mean_bar = torch.addcdiv(after_bar["mean"], new_parameters_bar, scale, value=-lr / bias1)
        square_bar = torch.addcdiv(
            after_bar["square"],
            new_parameters_bar * after["mean"],
            root.mul_(scale).mul_(scale),
            value=lr / (2 * bias1 * bias2),
        )
        decayed = torch.add(gradient, parameters, alpha=weight_decay)
        gradient_bar = torch.addcmul(
            (1 - self.beta1) * mean_bar, decayed, square_bar, value=2 * (1 - self.beta2)
        )
        return (
            torch.add(new_parameters_bar, gradient_bar, alpha=weight_decay),
            gradient_bar,
            {
                "step": after_bar["step"],
                "mean": self.beta1 * mean_bar,
                "square": self.beta2 * square_bar,
            },
        )


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent with heavy-ball momentum, as torch.optim.SGD defines it."""

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

    def pullback(
        self,
        parameters: Tensor,
        gradient: Tensor,
        after: OptimiserState,
        new_parameters_bar: Tensor,
        after_bar: OptimiserState,
        *,
        lr: float,
        weight_decay: float,
    ) -> tuple[Tensor, Tensor, OptimiserState]:
        """The update is linear, so that its adjoint needs no values, only cotangents."""
        direction_bar = -lr * new_parameters_bar
        velocity_bar = after_bar["velocity"]
        if self.nesterov:
            velocity_bar = torch.add(velocity_bar, direction_bar, alpha=self.momentum)
            gradient_bar = velocity_bar + direction_bar
        else:
            gradient_bar = velocity_bar = velocity_bar + direction_bar
        return (
            torch.add(new_parameters_bar, gradient_bar, alpha=weight_decay),
            gradient_bar,
            {"velocity": self.momentum * velocity_bar},
        )
