"""Exact, with the memory of one step: stores the trajectory and recomputes the graphs."""

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
    train,
)
from calibration.optimisers import OptimiserState


@ENGINES.register("adjoint")
class Adjoint(Engine):
    """The adjoint method: forward without graphs, backward with one step's graph at a time.

    Stores θ_k and the optimiser's state per step but no activations; takes about one and a half
    times as long as ``flat_unroll``.
    """

    description = "exact, through all steps; memory for the activations of one step only"
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
        trajectory: list[Point] = []
        for number in range(problem.steps):
            trajectory.append(point)
            point = train(problem, point, outer.detach(), [number])
        variables = leaf(outer)
        parameters_bar, outer_bar, value = outer_slopes(outer_loss, point.parameters, variables)
        steps = _made_again(problem, trajectory, variables)
        gradient = sweep_back(point, steps, problem.steps, parameters_bar, outer_bar, variables)
        return Hypergradient(gradient, value, point.loss, point.parameters, point.optimiser)


def _made_again(problem: InnerProblem, trajectory: list[Point], outer: Tensor) -> Iterator[Step]:
    while trajectory:
        point = trajectory.pop()
        parameters = leaf(point.parameters)
        slope, loss = slope_at(problem, parameters, outer, len(trajectory), graph=True)
        _, pullback = advance(problem, point, slope, loss)
        yield Step(parameters, slope, pullback)
