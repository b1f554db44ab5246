"""Hypergradients by the implicit function theorem: only the end of the training matters."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from calibration.bilevel.engine import Engine, Hypergradient, InnerProblem, OuterLoss
from calibration.bilevel.trajectory import leaf, outer_slopes, pull, slope_at, start, train
from calibration.optimisers import OptimiserState

Curvature = Callable[[Tensor], Tensor]
"""v ↦ H v, the inner problem's Hessian at θ_T with its weight decay."""


class ImplicitEngine(Engine):
    """∂f/∂u − (∂²L/∂u∂θ)ᵀ x with x ≈ H⁻¹ ∇_θ f, all at θ_T, regardless of the path to it.

    If θ_T were a minimum of the inner loss L + weight_decay · ‖θ‖²/2, H its Hessian and x exact,
    this would be the derivative of f at that minimum. L is the loss of the last step, number T − 1;
    subclasses differ in ``solve``. The T steps before cost as much as plain training.
    """

    exact = False

    @abstractmethod
    def solve(self, curvature: Curvature, slope: Tensor, lr: Tensor) -> Tensor:
        """x ≈ H⁻¹ ``slope`` from a few products with H."""

    def hypergradient(
        self,
        problem: InnerProblem,
        outer_loss: OuterLoss,
        parameters: Tensor,
        optimiser: OptimiserState,
        outer: Tensor,
    ) -> Hypergradient:
        """The implicit gradient at θ_T, as far as ``solve`` goes."""
        point = start(parameters, optimiser)
        point = train(problem, point, outer.detach(), range(problem.steps))
        variables, end = leaf(outer), leaf(point.parameters)
        parameters_bar, outer_bar, value = outer_slopes(outer_loss, point.parameters, variables)
        slope, _ = slope_at(problem, end, variables, problem.steps - 1, graph=True)

        def curvature(vector: Tensor) -> Tensor:
            (product,) = pull(slope, (end,), vector, retain_graph=True)
            return torch.addcmul(product, problem.weight_decay, vector)

        with torch.no_grad():
            solution = self.solve(curvature, parameters_bar, problem.lr)
            (indirect,) = pull(slope, (variables,), solution)
            gradient = outer_bar - indirect
        return Hypergradient(gradient, value, point.loss, point.parameters, point.optimiser)
