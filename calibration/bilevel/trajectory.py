"""Inner steps forwards, and the adjoint of the optimiser backwards along them.

One step is g_k = ∇_θ loss(θ_k, u, k) followed by θ_{k+1}, s_{k+1} = update(θ_k, g_k, s_k). Only
g_k needs autograd: the optimiser has its adjoint in closed form. So every step gets a graph of
its own, from fresh leaves to g_k, and the chain between the steps is arithmetic on vectors.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from calibration.bilevel.engine import InnerProblem, OuterLoss
from calibration.optimisers import OptimiserState


class Point(NamedTuple):
    """Where the inner problem stands, and the inner loss of the step that led there."""

    parameters: Tensor
    optimiser: OptimiserState
    loss: Tensor


class Step(NamedTuple):
    """One step as its adjoint needs it: θ_k (a leaf), g_k with its graph, the state after it."""

    parameters: Tensor
    slope: Tensor
    after: OptimiserState


def pull(
    output: Tensor,
    inputs: tuple[Tensor, ...],
    cotangent: Tensor | None = None,
    *,
    create_graph: bool = False,
    retain_graph: bool | None = None,
) -> tuple[Tensor, ...]:
    """The vector-Jacobian product; zeros for inputs that ``output`` does not depend on."""
    if not output.requires_grad:
        return tuple(torch.zeros_like(i) for i in inputs)
    return torch.autograd.grad(
        output,
        inputs,
        cotangent,
        create_graph=create_graph,
        retain_graph=retain_graph,
        allow_unused=True,
        materialize_grads=True,
    )


def leaf(values: Tensor) -> Tensor:
    """The same values as the start of a new graph."""
    return values.detach().requires_grad_()


def slope_at(
    problem: InnerProblem, parameters: Tensor, outer: Tensor, number: int, *, graph: bool
) -> tuple[Tensor, Tensor]:
    """∇_θ of the inner loss at a leaf, differentiable if ``graph``, and the loss's value."""
    with torch.enable_grad():
        loss = problem.loss(parameters, outer, number)
        (slope,) = pull(loss, (parameters,), create_graph=graph)
    return slope, loss.detach()


def advance(problem: InnerProblem, point: Point, slope: Tensor, loss: Tensor) -> Point:
    """One optimiser step along ``slope``, without a graph."""
    with torch.no_grad():
        parameters, optimiser = problem.optimiser.update(
            point.parameters,
            slope.detach(),
            point.optimiser,
            lr=problem.lr,
            weight_decay=problem.weight_decay,
        )
    return Point(parameters, optimiser, loss)


def train(problem: InnerProblem, point: Point, outer: Tensor, numbers: Iterable[int]) -> Point:
    """Plain training through the steps with these numbers; no graph survives."""
    for number in numbers:
        slope, loss = slope_at(problem, leaf(point.parameters), outer, number, graph=False)
        point = advance(problem, point, slope, loss)
    return point


def start(parameters: Tensor, optimiser: OptimiserState) -> Point:
    """The point before the first step, cut off from whatever graph the values came with."""
    state = {name: value.detach() for name, value in optimiser.items()}
    return Point(parameters.detach(), state, parameters.new_zeros(()))


def outer_slopes(
    outer_loss: OuterLoss, parameters: Tensor, outer: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """∂f/∂θ, ∂f/∂u and the value of the outer loss; ``outer`` is a leaf."""
    end = leaf(parameters)
    with torch.enable_grad():
        value = outer_loss(end, outer)
    parameters_bar, outer_bar = pull(value, (end, outer))
    return parameters_bar, outer_bar, value.detach()


def sweep_back(
    problem: InnerProblem,
    steps: Iterable[Step],
    count: int,
    parameters_bar: Tensor,
    outer_bar: Tensor,
    outer: Tensor,
) -> Tensor:
    """The gradient in ``outer`` of a function of θ after ``count`` steps, given last step first.

    ``parameters_bar`` and ``outer_bar`` are that function's own derivatives, ``outer`` the leaf
    that the steps were taken with.
    """
    state_bar: OptimiserState = {}
    lr, weight_decay = float(problem.lr), float(problem.weight_decay)
    with torch.no_grad():
        for before, step in zip(range(count - 1, -1, -1), steps, strict=True):
            parameters_bar, slope_bar, state_bar = problem.optimiser.pullback(
                step.parameters.detach(),
                step.slope.detach(),
                step.after,
                parameters_bar,
                state_bar or {name: torch.zeros_like(v) for name, v in step.after.items()},
                lr=lr,
                weight_decay=weight_decay,
            )
            if before:
                through, direct = pull(step.slope, (step.parameters, outer), slope_bar)
                parameters_bar = parameters_bar + through
            else:  # where the first step started does not depend on u: half of the work is saved
                (direct,) = pull(step.slope, (outer,), slope_bar)
            outer_bar = outer_bar + direct
    return outer_bar
