"""Optimisers as pure functions of one flat parameter vector.

``update`` takes values and returns values, changes nothing in place and is
differentiable in every argument, so that bilevel methods can differentiate through a
training step and many trials can be stepped at once under ``torch.vmap``. Learning rate
and weight decay are tensors for the same reason. The tests compare with torch.optim, whose
classes cannot be used here because they modify parameters in place.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol, TypedDict, Unpack

import torch
from torch import Tensor
from torch._C._functorch import is_batchedtensor

from calibration.registry import Registry

OPTIMISERS: Registry[Callable[..., Optimiser]] = Registry("optimiser", "calsweep.optimisers")
"""Factories of optimisers: called with ``momentum`` if they take it, else without arguments."""

OptimiserState = dict[str, Tensor]

Moved = tuple[Tensor, OptimiserState]
"""The parameters and the state after a step."""

Cotangents = tuple[Tensor, Tensor, OptimiserState]
"""The cotangents of the parameters, the gradient and the state before a step."""

Pullback = Callable[[Tensor, OptimiserState], Cotangents]
"""Cotangents of (new parameters, new state) → those of (parameters, gradient, old state).

Counters in the state are constants and have no cotangent.
"""

Linearised = tuple[Tensor, OptimiserState, Pullback]
"""A step, and the adjoint of its derivative."""


class Rates(TypedDict):
    """What scales a step; for vectors of many networks stacked as rows, a column each."""

    lr: Tensor
    weight_decay: Tensor


class Optimiser(Protocol):
    """What a training step requires of an optimiser.

    ``version`` is part of every trial's key: raise it when a change alters a step. An optimiser
    that also sets ``elementwise`` takes the vectors of K networks as rows, with K rates in a
    column: each number of its results depends only on the numbers at the same position.
    """

    version: ClassVar[int]

    def initial(self, parameters: Tensor) -> OptimiserState:
        """The state before the first step."""

    def update(
        self, parameters: Tensor, gradient: Tensor, state: OptimiserState, **rates: Unpack[Rates]
    ) -> Moved:
        """One step: the new parameters and the new state."""

    def linearise(
        self, parameters: Tensor, gradient: Tensor, state: OptimiserState, **rates: Unpack[Rates]
    ) -> Linearised:
        """``update`` at plain values, and the adjoint of its derivative there.

        Equals autograd through ``update``, with half the operations and without a graph. Does not
        support differentiating again.
        """


class OwnOptimiser(ABC):
    """An optimiser that is fully defined by ``initial`` and ``update``.

    For optimisers of your own: derive a frozen dataclass whose arguments have defaults, and
    name it ``package.module:Name`` in a spec. ``update`` must not change anything in place or
    draw random numbers; it gets ``lr`` and ``weight_decay`` as keywords. Bilevel methods
    differentiate through it with autograd.
    """

    version: ClassVar[int] = 1

    @abstractmethod
    def initial(self, parameters: Tensor) -> OptimiserState:
        """The state before the first step."""

    @abstractmethod
    def update(
        self, parameters: Tensor, gradient: Tensor, state: OptimiserState, **rates: Unpack[Rates]
    ) -> Moved:
        """One step: the new parameters and the new state."""

    def linearise(
        self, parameters: Tensor, gradient: Tensor, state: OptimiserState, **rates: Unpack[Rates]
    ) -> Linearised:
        """``update``, and the adjoint of its derivative by autograd."""

        def step(
            parameters: Tensor, gradient: Tensor, vectors: OptimiserState
        ) -> tuple[Moved, OptimiserState]:
            moved, after = self.update(parameters, gradient, state | vectors, **rates)
            return (moved, {name: after[name] for name in vectors}), after

        vectors = {name: value for name, value in state.items() if value.dim()}
        with torch.enable_grad():
            found: Any = torch.func.vjp(step, parameters, gradient, vectors, has_aux=True)
        (moved, _), adjoint, after = found

        def pullback(moved_bar: Tensor, state_bar: OptimiserState) -> Cotangents:
            bars: Cotangents = adjoint((moved_bar, {name: state_bar[name] for name in vectors}))
            return bars

        return moved.detach(), {name: value.detach() for name, value in after.items()}, pullback


@OPTIMISERS.register("adam")
@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba 2015) with L2 weight decay added to the gradient.

    ``eps_root`` is added under the square root: at 0 the root's slope is infinite and
    one dead ReLU turns a hypergradient into NaN. 1e-16 (``eps`` squared) keeps it finite
    and affects a step only where gradients are themselves below about ``eps``.
    """

    version: ClassVar[int] = 1
    elementwise: ClassVar[bool] = True
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
        self, parameters: Tensor, gradient: Tensor, state: OptimiserState, **rates: Unpack[Rates]
    ) -> Moved:
        """θ ← θ − lr · m̂ / (√(v̂ + eps_root) + eps)."""
        lr, weight_decay = rates["lr"], rates["weight_decay"]
        gradient = torch.addcmul(gradient, weight_decay, parameters)
        step = state["step"] + 1
        mean = torch.lerp(state["mean"], gradient, 1 - self.beta1)
        bias1, bias2 = self._biases(step)
        if torch.is_grad_enabled():
            square = torch.lerp(state["square"], gradient * gradient, 1 - self.beta2)
            after = {"step": step, "mean": mean, "square": square}
            root = (square / bias2 + self.eps_root).sqrt() + self.eps
            return parameters - lr * (mean / bias1 / root), after
        # This step is not differentiated through: the same numbers without new tensors.
        square = torch.lerp(state["square"], gradient.mul_(gradient), 1 - self.beta2)
        root = (square / bias2).add_(self.eps_root).sqrt_().add_(self.eps)
        moved = parameters - (mean / bias1).div_(root).mul_(lr)
        return moved, {"step": step, "mean": mean, "square": square}

    def linearise(
        self, parameters: Tensor, gradient: Tensor, state: OptimiserState, **rates: Unpack[Rates]
    ) -> Linearised:
        """With r = √(v̂ + eps_root) and s = r + eps: ∂θ/∂m̂ = −lr/s, ∂θ/∂v̂ = lr · m̂/(2 r s²)."""
        lr, weight_decay = rates["lr"], rates["weight_decay"]
        step = state["step"] + 1
        # In float64: rounded only once, like Python floats, but without synchronising the device.
        bias1, bias2 = self._biases(step.double())
        rate = (lr.double() / bias1).to(lr.dtype)
        slope = (lr.double() / (2 * bias1 * bias2)).to(lr.dtype)
        decayed = torch.addcmul(gradient, parameters, weight_decay)
        mean = torch.lerp(state["mean"], decayed, 1 - self.beta1)
        square = torch.lerp(state["square"], decayed * decayed, 1 - self.beta2)
        root = (square / bias2.to(square.dtype)).add_(self.eps_root).sqrt_()
        scale = root + self.eps
        moved = parameters - rate * mean / scale

        def pullback(moved_bar: Tensor, state_bar: OptimiserState) -> Cotangents:
            share = moved_bar / scale
            mean_bar = torch.addcmul(state_bar["mean"], share, -rate)
            square_bar = state_bar["square"] + slope * (share * mean) / (root * scale)
            gradient_bar = torch.addcmul(
                (1 - self.beta1) * mean_bar, decayed, square_bar, value=2 * (1 - self.beta2)
            )
            parameters_bar = torch.addcmul(moved_bar, gradient_bar, weight_decay)
            before_bar = {"mean": self.beta1 * mean_bar, "square": self.beta2 * square_bar}
            return parameters_bar, gradient_bar, before_bar

        return moved, {"step": step, "mean": mean, "square": square}, pullback

    def _biases(self, step: Tensor) -> tuple[Tensor, Tensor]:
        """1 − β1^step and 1 − β2^step."""
        if step.dim() or is_batchedtensor(step):
            # A vector of 16 powers and a single power are rounded by different kernels; strided
            # values all use the one for single powers, as a network trained alone does.
            step = torch.stack([step, step], dim=-1)[..., 0]
        return torch.rsub(torch.pow(self.beta1, step), 1), torch.rsub(
            torch.pow(self.beta2, step), 1
        )


@OPTIMISERS.register("adamw")
@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    version: ClassVar[int] = 1

    def update(
        self, parameters: Tensor, gradient: Tensor, state: OptimiserState, **rates: Unpack[Rates]
    ) -> Moved:
        """θ ← (1 − lr · weight_decay) · θ, then a step of Adam without decay."""
        factor, none = self._shrinkage(rates)
        return super().update(parameters * factor, gradient, state, **none)

    def linearise(
        self, parameters: Tensor, gradient: Tensor, state: OptimiserState, **rates: Unpack[Rates]
    ) -> Linearised:
        """Adam's linearisation, preceded by a multiplication."""
        factor, none = self._shrinkage(rates)
        moved, after, of_adam = super().linearise(parameters * factor, gradient, state, **none)

        def pullback(moved_bar: Tensor, state_bar: OptimiserState) -> Cotangents:
            shrunk_bar, gradient_bar, before_bar = of_adam(moved_bar, state_bar)
            return factor * shrunk_bar, gradient_bar, before_bar

        return moved, after, pullback

    def _shrinkage(self, rates: Rates) -> tuple[Tensor, Rates]:
        """The factor on the weights, and the rates of Adam's own step."""
        lr, weight_decay = rates["lr"], rates["weight_decay"]
        return 1 - lr * weight_decay, {"lr": lr, "weight_decay": torch.zeros_like(weight_decay)}


@OPTIMISERS.register("sgd")
@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent with heavy-ball momentum, as torch.optim.SGD defines it."""

    version: ClassVar[int] = 1
    elementwise: ClassVar[bool] = True
    momentum: float = 0.9
    nesterov: bool = False

    def initial(self, parameters: Tensor) -> OptimiserState:
        """A velocity of zero."""
        return {"velocity": torch.zeros_like(parameters)}

    def update(
        self, parameters: Tensor, gradient: Tensor, state: OptimiserState, **rates: Unpack[Rates]
    ) -> Moved:
        """v ← momentum · v + g;  θ ← θ − lr · v; Nesterov: θ ← θ − lr · (g + momentum · v)."""
        gradient = torch.addcmul(gradient, rates["weight_decay"], parameters)
        velocity = self.momentum * state["velocity"] + gradient
        direction = gradient + self.momentum * velocity if self.nesterov else velocity
        return parameters - rates["lr"] * direction, {"velocity": velocity}

    def linearise(
        self, parameters: Tensor, gradient: Tensor, state: OptimiserState, **rates: Unpack[Rates]
    ) -> Linearised:
        """The update is linear: its adjoint needs only cotangents."""
        lr, weight_decay = rates["lr"], rates["weight_decay"]
        decayed = torch.addcmul(gradient, parameters, weight_decay)
        velocity = torch.add(decayed, state["velocity"], alpha=self.momentum)
        direction = decayed + self.momentum * velocity if self.nesterov else velocity
        moved = torch.addcmul(parameters, direction, -lr)

        def pullback(moved_bar: Tensor, state_bar: OptimiserState) -> Cotangents:
            direction_bar = -lr * moved_bar
            if self.nesterov:
                velocity_bar = state_bar["velocity"] + self.momentum * direction_bar
                gradient_bar = velocity_bar + direction_bar
            else:
                gradient_bar = velocity_bar = state_bar["velocity"] + direction_bar
            parameters_bar = torch.addcmul(moved_bar, gradient_bar, weight_decay)
            return parameters_bar, gradient_bar, {"velocity": self.momentum * velocity_bar}

        return moved, {"velocity": velocity}, pullback


OPTIMISERS.register("nesterov")(partial(SGD, nesterov=True))


def make_optimiser(name: str, momentum: float) -> Optimiser:
    """Construct the optimiser registered as ``name`` or at an import path.

    Raises ``ValueError`` for an unknown name, and for anything that is not an optimiser.
    """
    make = OPTIMISERS[name]
    try:
        takes = "momentum" in inspect.signature(make).parameters
        made = make(momentum=momentum) if takes else make()
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"optimiser {name!r} cannot be made: {error}; all arguments of its class but "
            "'momentum' need defaults"
        ) from None
    lacking = [n for n in ("version", "initial", "update", "linearise") if not hasattr(made, n)]
    if lacking:
        raise ValueError(
            f"optimiser {name!r} has no {lacking[0]!r}; derive it from "
            "calibration.optimisers.OwnOptimiser"
        )
    return made
