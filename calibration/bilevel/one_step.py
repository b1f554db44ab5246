"""T1–T2: one step, with the Hessian approximated by the identity."""

from __future__ import annotations

from torch import Tensor

from calibration.bilevel.engine import ENGINES
from calibration.bilevel.implicit import Curvature, ImplicitEngine


@ENGINES.register("one_step")
class OneStep(ImplicitEngine):
    """T1–T2 (Luketina et al. 2016): x = lr · ∇f, as if one gradient step ended at θ_T.

    The direction of plain gradient descent even where the inner optimiser is Adam; ``terms``
    is ignored.
    """

    description = "T1–T2: one gradient step's worth of influence, Hessian taken for the identity"

    def solve(self, curvature: Curvature, slope: Tensor, lr: Tensor) -> Tensor:
        """x = lr · ``slope``."""
        return lr * slope
