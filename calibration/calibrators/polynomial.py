"""Shape-restricted polynomial regression (Wang, Li and Dang 2019)."""

from __future__ import annotations

from math import comb

import numpy as np
from numpy.polynomial import polynomial as powers
from scipy.interpolate import BPoly
from scipy.optimize import nnls

from calibration.calibrators.calibrator import CALIBRATORS, Floats
from calibration.calibrators.one_vs_rest import OneVsRest, Score
from calibration.complexity import CalibratorComplexity

DEGREE = 7
# Slopes are constrained at this many points at first, then wherever one is below −TOLERANCE.
POINTS, ROUNDS, TOLERANCE = 33, 50, 1e-9
# Pulls the coefficients towards the mean of y: few distinct x would leave them undetermined.
RIDGE = 1e-9


# The powers of x in each Bernstein polynomial of degree DEGREE − 1.
_POWERS = np.array(
    [
        [comb(DEGREE - 1, i) * comb(i, k) * (-1) ** (i - k) for i in range(DEGREE)]
        for k in range(DEGREE)
    ],
    dtype=np.float64,
)


@CALIBRATORS.register("polynomial")
class Polynomial(OneVsRest[Floats]):
    """The non-decreasing polynomial with the least squared error per class (Wang et al. 2019).

    min_p mean (y − p(x))² subject to p′ ≥ 0 on [0, 1] and 1/(N+2) ≤ p(0), p(1) ≤ 1 − 1/(N+2):
    as certain as N observations allow. x is the probability of the class, so that a calibrated
    network can stay unchanged; the degree is 7.

    The paper formulates p′ ≥ 0 as a semidefinite program. Here the same convex problem is solved
    with p′ ≥ 0 at finitely many points, to which the points of least slope are added until none
    is below −1e-9; each of these problems is a least-distance program (Lawson and Hanson 1974).
    """

    description = "non-decreasing polynomial of the probability, one-vs-rest (Wang et al. 2019)"
    complexity = CalibratorComplexity.PER_CLASS
    scaling = False
    fast = False
    weighted = True

    def _fit_map(self, score: Score, target: Floats) -> Floats:
        coefficients, converged = monotone_polynomial(score.p, target, score.weights)
        self.converged = self.converged and converged
        return coefficients

    def _apply_map(self, fitted: Floats, score: Score) -> Floats:
        values: Floats = bernstein(score.p) @ fitted
        return values


def bernstein(x: Floats, degree: int = DEGREE) -> Floats:
    """The Bernstein polynomials at x, (N, degree + 1)."""
    values: Floats = BPoly(np.eye(degree + 1)[:, None, :], [0.0, 1.0])(x)
    return values


def monotone_polynomial(x: Floats, y: Floats, weights: Floats | None = None) -> tuple[Floats, bool]:
    """The coefficients of the problem's solution for x in [0, 1], and whether it was reached."""
    samples, mean, rows = float(len(x)), y.mean(), bernstein(x)
    if weights is not None:
        samples, mean = float(weights.sum()), weights @ y / weights.sum()
        rows, y = np.sqrt(weights)[:, None] * rows, np.sqrt(weights) * y
    system = np.vstack([rows, np.sqrt(RIDGE * samples) * np.eye(DEGREE + 1)])
    wanted = np.concatenate([y, np.full(DEGREE + 1, np.sqrt(RIDGE * samples) * mean)])
    q, r = np.linalg.qr(system)
    centre = q.T @ wanted
    least = 1 / (samples + 2)
    ends = np.zeros((2, DEGREE + 1))
    ends[0, 0], ends[1, -1] = 1, -1
    points = (1 - np.cos(np.linspace(0, np.pi, POINTS))) / 2
    for _ in range(ROUNDS):
        required = np.vstack([ends, slopes(points)])
        bounds = np.concatenate([[least, least - 1], np.zeros(len(points))])
        whitened = np.linalg.solve(r.T, required.T).T
        found = least_distance(whitened, bounds - whitened @ centre)
        coefficients: Floats = np.linalg.solve(r, centre + found)
        lowest, slope = least_slope(coefficients)
        if slope >= -TOLERANCE:
            return coefficients, True
        points = np.append(points, lowest)
    # Ascending coefficients give an ascending polynomial, though not the best.
    return np.maximum.accumulate(coefficients.clip(least, 1 - least)), False


def slopes(points: Floats) -> Floats:
    """The matrix from Bernstein coefficients to the derivative at the points."""
    lower = bernstein(points, DEGREE - 1)
    return DEGREE * (np.pad(lower, ((0, 0), (1, 0))) - np.pad(lower, ((0, 0), (0, 1))))


def least_distance(matrix: Floats, bounds: Floats) -> Floats:
    """The shortest u with ``matrix`` u ≥ ``bounds``, which must be feasible."""
    system = np.vstack([matrix.T, bounds])
    goal = np.append(np.zeros(matrix.shape[1]), 1.0)
    weights, _ = nnls(system, goal, maxiter=100 * len(bounds))
    residual = system @ weights - goal
    shortest: Floats = -residual[:-1] / residual[-1]
    return shortest


def least_slope(coefficients: Floats) -> tuple[float, float]:
    """Where in [0, 1] the polynomial's slope is least, and its value there."""
    derivative = DEGREE * np.diff(coefficients) @ _POWERS
    turning = powers.polyroots(powers.polyder(derivative))
    real = turning[np.abs(turning.imag) < 1e-6].real
    candidates = np.concatenate([[0.0, 1.0], real[(real > 0) & (real < 1)]])
    values = powers.polyval(candidates, derivative)
    lowest = int(values.argmin())
    return float(candidates[lowest]), float(values[lowest])
