"""Exact through the last few steps; ignores the effect of u on earlier ones."""

from __future__ import annotations

from torch import Tensor

from calibration.bilevel.engine import ENGINES, Engine, Hypergradient, InnerProblem, OuterLoss
from calibration.bilevel.flat_unroll import unrolled
from calibration.bilevel.trajectory import start, train
from calibration.optimisers import OptimiserState


@ENGINES.register("truncated")
class Truncated(Engine):
    """Truncated back-propagation (Shaban et al. 2019): the last ``terms`` steps only.

    θ_{T−k} and the optimiser's state there are treated as constants. Near a strongly convex
    solution, the error decreases exponentially in k; with k ≥ T it is 0.
    """

    description = "exact through the last `terms` steps, blind to the earlier ones"
    exact = False

    def hypergradient(
        self,
        problem: InnerProblem,
        outer_loss: OuterLoss,
        parameters: Tensor,
        optimiser: OptimiserState,
        outer: Tensor,
    ) -> Hypergradient:
        """d f(θ_T(u), u) / du with θ_{T−k} held fixed."""
        first = max(0, problem.steps - self.terms)
        point = train(problem, start(parameters, optimiser), outer.detach(), range(first))
        return unrolled(problem, outer_loss, point, outer, range(first, problem.steps))
