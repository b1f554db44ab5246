"""The non-decreasing polynomial: a constrained solver, shapes and limits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from calibration import calibrators
from calibration.calibrators.polynomial import DEGREE, bernstein, monotone_polynomial, slopes

MESH = np.linspace(0, 1, 2001)


def outcomes(shape: str, samples: int = 400) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    x = generator.uniform(size=samples)
    chance = {
        "step": np.where(x < 0.5, 0.1, 0.8),
        "falling": 0.9 - 0.8 * x,
        "calibrated": x,
        "certain": np.ones_like(x),
    }[shape]
    return x, (generator.uniform(size=samples) < chance).astype(float)


@pytest.mark.parametrize("shape", ["step", "falling", "calibrated", "certain"])
def test_no_constrained_solver_finds_a_better_one(shape: str) -> None:
    x, y = outcomes(shape)
    basis, slope, least = bernstein(x), slopes(MESH), 1 / (len(x) + 2)
    ends = np.zeros((2, DEGREE + 1))
    ends[0, 0], ends[1, -1] = 1, -1

    def loss(c: np.ndarray) -> tuple[float, np.ndarray]:
        gap = basis @ c - y
        return float((gap**2).mean()), 2 * basis.T @ gap / len(x)

    constraints = np.vstack([slope, ends])
    bounds = np.concatenate([np.zeros(len(MESH)), [least, least - 1]])
    theirs = minimize(
        loss,
        np.linspace(0.3, 0.7, DEGREE + 1),
        jac=True,
        method="SLSQP",
        constraints={
            "type": "ineq",
            "fun": lambda c: constraints @ c - bounds,
            "jac": lambda _: constraints,
        },
        options={"ftol": 1e-13, "maxiter": 500},
    )
    ours, converged = monotone_polynomial(x, y)
    assert converged
    # Their slopes hold on a mesh only, and they stop within 1e-13; our ridge costs below 1e-8·c².
    assert loss(ours)[0] == pytest.approx(theirs.fun, abs=1e-6)
    assert (constraints @ ours - bounds).min() > -1e-8


def test_where_no_constraint_binds_it_is_plain_least_squares() -> None:
    generator = np.random.default_rng(1)
    x = generator.uniform(size=5000)
    y = 0.2 + 0.6 * (x + x**3) / 2  # a polynomial within the bounds, and steep enough everywhere
    coefficients, _ = monotone_polynomial(x, y)
    expected = 0.2 + 0.6 * (MESH + MESH**3) / 2
    np.testing.assert_allclose(bernstein(MESH) @ coefficients, expected, atol=1e-6)


def test_outcomes_that_fall_leave_their_mean() -> None:
    x, y = outcomes("falling", 4000)
    coefficients, _ = monotone_polynomial(x, y)
    np.testing.assert_allclose(bernstein(MESH) @ coefficients, y.mean(), atol=1e-5)


def test_a_calibrated_network_stays_as_it_is(gaussians) -> None:
    fitting, fresh = gaussians(20_000, 3), gaussians(500, 3, seed=1)
    mapped = calibrators.fit("polynomial", fitting.logits, fitting.labels)(fresh.logits)
    # A regression with 8 coefficients of 20 000 outcomes: √(8/20 000)/2 = 0.01 at most.
    assert (mapped - fresh.posterior).abs().mean() < 0.01


def test_it_never_becomes_certain() -> None:
    logits = torch.tensor([[9.0, 0.0], [0.0, 9.0]], dtype=torch.float64).repeat(10, 1)
    fitted = calibrators.fit("polynomial", logits, logits.argmax(1))
    extreme = torch.tensor([[1e3, 0.0], [0.0, 1e3]], dtype=torch.float64)
    assert fitted(extreme).amin() == pytest.approx(1 / 22)
