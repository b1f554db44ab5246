"""Inner steps forward, and the optimiser's adjoint backward along them.

One step is g_k = ∇_θ loss(θ_k, u, k) followed by θ_{k+1}, s_{k+1} = update(θ_k, g_k, s_k). Only
g_k needs autograd: the optimiser has its adjoint in closed form. So every step gets its own
graph, from fresh leaves to g_k, and the chain between the steps is arithmetic on vectors.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from calibration.bilevel.engine import InnerProblem, OuterLoss
from calibration.optimisers import OptimiserState, Pullback


class Point(NamedTuple):
    """The state of the inner problem, and the inner loss of the step that led to it."""

    parameters: Tensor
    optimiser: OptimiserState
    loss: Tensor


class Step(NamedTuple):
    """One step for the backward sweep: θ_k (a leaf), g_k with its graph, the update's adjoint."""

    parameters: Tensor
    slope: Tensor
    pullback: Pullback


def leaf(values: Tensor) -> Tensor:
    """The same values as a leaf of a new graph."""
    return values.detach().requires_grad_()


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


def slope_at(
    problem: InnerProblem, parameters: Tensor, outer: Tensor, number: int, *, graph: bool
) -> tuple[Tensor, Tensor]:
    """∇_θ of the inner loss at a leaf, differentiable if ``graph``, and the loss's value."""
    with torch.enable_grad():
        loss = problem.loss(parameters, outer, number)
        (slope,) = pull(loss, (parameters,), create_graph=graph)
    return slope, loss.detach()


def start(parameters: Tensor, optimiser: OptimiserState) -> Point:
    """The point before the first step, detached from any graph of the values."""
    state = {name: value.detach() for name, value in optimiser.items()}
    return Point(parameters.detach(), state, parameters.new_zeros(()))


def advance(
    problem: InnerProblem, point: Point, slope: Tensor, loss: Tensor
) -> tuple[Point, Pullback]:
    """One optimiser step along ``slope``, outside of any graph, and its adjoint."""
    with torch.no_grad():
        parameters, optimiser, pullback = problem.optimiser.linearise(
            point.parameters,
            slope.detach(),
            point.optimiser,
            lr=problem.lr,
            weight_decay=problem.weight_decay,
        )
    return Point(parameters, optimiser, loss), pullback


def train(problem: InnerProblem, point: Point, outer: Tensor, numbers: Iterable[int]) -> Point:
    """Plain training through the steps with these numbers; no graph is kept."""
    for number in numbers:
        slope, loss = slope_at(problem, leaf(point.parameters), outer, number, graph=False)
        point, _ = advance(problem, point, slope, loss)
    return point


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
    end: Point,
    steps: Iterable[Step],
    count: int,
    parameters_bar: Tensor,
    outer_bar: Tensor,
    outer: Tensor,
) -> Tensor:
    """The gradient in ``outer`` of a function f of θ after ``count`` steps, last step first.

    ``parameters_bar`` and ``outer_bar`` are ∂f/∂θ and ∂f/∂u at ``end``, ``outer`` the leaf that
    the steps were taken with.
    """
    state_bar = {name: torch.zeros_like(value) for name, value in end.optimiser.items()}
    with torch.no_grad():
        for before, step in zip(range(count - 1, -1, -1), steps, strict=True):
            parameters_bar, slope_bar, state_bar = step.pullback(parameters_bar, state_bar)
            if before:
                through, direct = pull(step.slope, (step.parameters, outer), slope_bar)
                parameters_bar = parameters_bar + through
            else:  # the starting point does not depend on u, which saves half of the work
                (direct,) = pull(step.slope, (outer,), slope_bar)
            outer_bar = outer_bar + direct
    return outer_bar
