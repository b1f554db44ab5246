"""Natural cubic splines with given knots."""

from __future__ import annotations

import numpy as np
from scipy.interpolate import CubicSpline

from calibration.calibrators.calibrator import Floats


class NaturalSplines:
    """The natural cubic splines that are 1 at one of the knots and 0 at the others.

    A spline's coefficients are its values at the knots. Outside them it continues linearly.
    """

    def __init__(self, knots: Floats) -> None:
        self.knots = knots
        self.cardinal = CubicSpline(knots, np.eye(len(knots)), bc_type="natural")

    def __call__(self, at: Floats) -> Floats:
        """The splines' values at ``at``, (N, knots)."""
        inside = at.clip(self.knots[0], self.knots[-1])
        values: Floats = self.cardinal(inside)
        beyond = inside != at
        values[beyond] += (at - inside)[beyond, None] * self.cardinal(inside[beyond], 1)
        return values

    def slopes(self, at: Floats) -> Floats:
        """The splines' derivatives at ``at``, (N, knots)."""
        slopes: Floats = self.cardinal(at.clip(self.knots[0], self.knots[-1]), 1)
        return slopes

    def by_roughness(self) -> Floats:
        """A basis of coefficients, one per column: f(x) = x, f = 1, and curves with ∫ f″² = 1.

        In the integral, x is in units of the knots' range; the curves are orthogonal under
        it, so that the roughness of any spline is the sum of squares of its weights.
        """
        second = self.cardinal(self.knots, 2)
        left, right = second[:-1, :, None], second[1:, None, :]
        # f″ is linear between knots: f″² integrates to h/3·(l² + lr + r²).
        cross = left * right
        square = left * second[:-1, None, :] + second[1:, :, None] * right
        width = np.diff(self.knots)[:, None, None]
        roughness = (width / 3 * (square + (cross + cross.transpose(0, 2, 1)) / 2)).sum(axis=0)
        size, vectors = np.linalg.eigh(roughness * (self.knots[-1] - self.knots[0]) ** 3)
        # Straight lines have no roughness: they are the first two eigenvectors.
        curves = vectors[:, 2:] / np.sqrt(size[2:])
        return np.column_stack([self.knots, np.ones_like(self.knots), curves])
