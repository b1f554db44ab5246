"""The implicit gradient, with the inverse Hessian approximated by a Neumann series."""

from __future__ import annotations

from torch import Tensor

from calibration.bilevel.engine import ENGINES
from calibration.bilevel.implicit import Curvature, ImplicitEngine

POWER_ITERATIONS = 10


@ENGINES.register("neumann")
class Neumann(ImplicitEngine):
    """H⁻¹ ≈ α Σ_{j<k} (I − αH)ʲ with ``terms`` = k (Lorraine et al. 2020).

    The series converges for 0 < α < 2/λ_max. α = 1/λ with λ ≤ λ_max estimated by ten power
    iterations starting from ∇f itself: only the part of the spectrum that ∇f excites needs to
    be bounded, and nothing is random. With one term, this is ``one_step`` at the learning
    rate 1/λ. Negative eigenvalues, which networks have, make the series diverge, by a factor
    of at most 2 per term; keep ``terms`` small in that case.
    """

    description = "implicit gradient, inverse Hessian by `terms` terms of a Neumann series"
    grows_with_lr = False

    def solve(self, curvature: Curvature, slope: Tensor, lr: Tensor) -> Tensor:
        """The sum of the series applied to ``slope``; lr · ``slope`` where H vanishes."""
        largest = largest_eigenvalue(curvature, slope)
        if not largest > 0:
            return lr * slope
        term = slope / largest
        total = term
        for _ in range(self.terms - 1):
            term = term - curvature(term) / largest
            total = total + term
        return total


def largest_eigenvalue(curvature: Curvature, start: Tensor) -> float:
    """A lower bound on H's largest absolute eigenvalue in the Krylov space of ``start``."""
    vector, size = start, 0.0
    for _ in range(POWER_ITERATIONS):
        length = float(vector.norm())
        if length == 0:
            return 0.0
        vector = curvature(vector / length)
        size = max(size, float(vector.norm()))
    return size
