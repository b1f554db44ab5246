"""Exact, in the memory of one step: the trajectory is stored, graphs are made again."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from calibration.bilevel.engine import ENGINES, Engine, Hypergradient, InnerProblem, OuterLoss
from calibration.bilevel.trajectory import (
    Step,
    advance,
    leaf,
    outer_slopes,
    slope_at,
    start,
    sweep_back,
)
from calibration.optimisers import OptimiserState

Stored = tuple[Tensor, OptimiserState]
"""θ_k and the optimiser's state after step k."""


@ENGINES.register("adjoint")
class Adjoint(Engine):
    """The adjoint method: forwards without graphs, backwards with one step's graph at a time.

    Stores θ_k and the optimiser's state per step and no activations, for about half as much
    time again as ``flat_unroll``.
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
        """d f(θ_T(u), u) / du to rounding error."""
        point = start(parameters, optimiser)
        trajectory: list[Stored] = []
        for number in range(problem.steps):
            before = point.parameters
            slope, loss = slope_at(problem, leaf(before), outer.detach(), number, graph=False)
            point = advance(problem, point, slope, loss)
            trajectory.append((before, point.optimiser))
        variables = leaf(outer)
        parameters_bar, outer_bar, value = outer_slopes(outer_loss, point.parameters, variables)
        gradient = sweep_back(
            problem,
            _made_again(problem, trajectory, variables),
            problem.steps,
            parameters_bar,
            outer_bar,
            variables,
        )
        return Hypergradient(gradient, value, point.loss, point.parameters, point.optimiser)


def _made_again(problem: InnerProblem, trajectory: list[Stored], outer: Tensor) -> Iterator[Step]:
    while trajectory:
        before, after = trajectory.pop()
        parameters = leaf(before)
        slope, _ = slope_at(problem, parameters, outer, len(trajectory), graph=True)
        yield Step(parameters, slope, after)
