"""Exact: keeps every step's graph; the optimiser's adjoint is in closed form."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from calibration.bilevel.engine import ENGINES, Engine, Hypergradient, InnerProblem, OuterLoss
from calibration.bilevel.trajectory import (
    Point,
    Step,
    advance,
    leaf,
    outer_slopes,
    slope_at,
    start,
    sweep_back,
)
from calibration.optimisers import OptimiserState


@ENGINES.register("flat_unroll")
class FlatUnroll(Engine):
    """Reverse mode through all T steps, one small graph per step.

    Autograd sees only ∇_θ loss(θ_k, u, k); the optimiser, a dozen operations on small vectors
    that cost more as a graph than as arithmetic, provides its own adjoint. Memory grows as T
    times the activations of one step; those of each step are freed during the backward sweep.
    """

    description = "exact, through all steps; fastest while T steps' activations fit in memory"
    exact = True

    def hypergradient(
        self,
        problem: InnerProblem,
        outer_loss: OuterLoss,
        parameters: Tensor,
        optimiser: OptimiserState,
        outer: Tensor,
    ) -> Hypergradient:
        """d f(θ_T(u), u) / du up to rounding error."""
        point = start(parameters, optimiser)
        return unrolled(problem, outer_loss, point, outer, range(problem.steps))


def unrolled(
    problem: InnerProblem, outer_loss: OuterLoss, point: Point, outer: Tensor, numbers: range
) -> Hypergradient:
    """Take the steps with these numbers from ``point``, and differentiate through them."""
    variables = leaf(outer)
    steps: list[Step] = []
    for number in numbers:
        parameters = leaf(point.parameters)
        slope, loss = slope_at(problem, parameters, variables, number, graph=True)
        point, pullback = advance(problem, point, slope, loss)
        steps.append(Step(parameters, slope, pullback))
    parameters_bar, outer_bar, value = outer_slopes(outer_loss, point.parameters, variables)
    gradient = sweep_back(point, _taken(steps), len(steps), parameters_bar, outer_bar, variables)
    return Hypergradient(gradient, value, point.loss, point.parameters, point.optimiser)


def _taken(steps: list[Step]) -> Iterator[Step]:
    while steps:
        yield steps.pop()
