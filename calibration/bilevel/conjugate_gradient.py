"""The implicit gradient, with the inverse Hessian approximated by conjugate gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from calibration.bilevel.engine import ENGINES
from calibration.bilevel.implicit import Curvature, ImplicitEngine

DAMPING = 1e-6


@ENGINES.register("conjugate_gradient")
class ConjugateGradient(ImplicitEngine):
    """``terms`` iterations of conjugate gradients on (H + 10⁻⁶ I) x = ∇f (Pedregosa 2016).

    The damping bounds x along directions without curvature; it changes the result by at most
    10⁻⁶/λ_min in relative terms. A network's Hessian is indefinite: the iteration stops at a
    direction without positive curvature, and if that is the first one, x = lr · ∇f as in
    ``one_step``. It also stops when the residual reaches rounding error.
    """

    description = "implicit gradient, inverse Hessian by `terms` iterations of conjugate gradients"
    grows_with_lr = False

    def solve(self, curvature: Curvature, slope: Tensor, lr: Tensor) -> Tensor:
        """The last iterate reached along directions of positive curvature."""
        solution, residual, direction = torch.zeros_like(slope), slope, slope
        squared = float(residual @ residual)
        enough = squared * torch.finfo(slope.dtype).eps ** 2
        for iteration in range(self.terms):
            if squared <= enough:
                break
            image = curvature(direction)
            if not float(direction @ image) > 0:
                return solution if iteration else lr * slope
            image = image + DAMPING * direction
            step = squared / float(direction @ image)
            solution = solution + step * direction
            residual = residual - step * image
            previous, squared = squared, float(residual @ residual)
            direction = residual + (squared / previous) * direction
        return solution
