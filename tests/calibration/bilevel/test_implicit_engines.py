"""Implicit engines on a solved, strongly convex inner problem, where the answer is known."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from calibration.bilevel import Hypergradient, InnerProblem, make_engine
from calibration.bilevel.conjugate_gradient import DAMPING
from calibration.optimisers import SGD

DECAY, LR = torch.tensor(0.2, dtype=torch.double), torch.tensor(0.3, dtype=torch.double)


@dataclass(frozen=True)
class Solved:
    """Weighted logistic regression at its minimum, with its derivatives as dense matrices."""

    hessian: Tensor
    mixed: Tensor
    slope: Tensor
    direct: Tensor
    minimum: Tensor
    weights: Tensor

    def implicit(self, damping: float = 0.0) -> Tensor:
        damped = self.hessian + damping * torch.eye(len(self.hessian), dtype=torch.double)
        return self.direct - self.mixed.T @ torch.linalg.solve(damped, self.slope)

    def run(self, engine: str, terms: int = 5, steps: int = 1) -> Hypergradient:
        problem = InnerProblem(inner, SGD(momentum=0.0), LR, DECAY, steps)
        state = problem.optimiser.initial(self.minimum)
        return make_engine(engine, terms).hypergradient(
            problem, outer, self.minimum, state, self.weights
        )

    def error(self, engine: str, terms: int, steps: int = 1, damping: float = 0.0) -> float:
        expected = self.implicit(damping)
        return float((self.run(engine, terms, steps).gradient - expected).norm() / expected.norm())


def _data(seed: int, rows: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(rows, 6, generator=generator, dtype=torch.double)
    return inputs, (inputs[:, 0] + 0.5 * torch.randn(rows, generator=generator) > 0).double()


TRAINING, HELD_OUT = _data(0, 30), _data(1, 20)


def inner(theta: Tensor, u: Tensor, number: int) -> Tensor:
    inputs, labels = TRAINING
    losses = F.binary_cross_entropy_with_logits(inputs @ theta, labels, reduction="none")
    return (u * losses).mean()


def outer(theta: Tensor, u: Tensor) -> Tensor:
    inputs, labels = HELD_OUT
    return F.binary_cross_entropy_with_logits(inputs @ theta, labels) + 0.01 * u.square().sum()


@pytest.fixture(scope="module")
def solved() -> Solved:
    weights = torch.linspace(0.2, 2, 30, dtype=torch.double)

    def objective(theta: Tensor) -> Tensor:
        return inner(theta, weights, 0) + DECAY * theta.square().sum() / 2

    theta = torch.zeros(6, dtype=torch.double)
    for _ in range(20):
        hessian = torch.func.hessian(objective)(theta)
        theta = theta - torch.linalg.solve(hessian, torch.func.grad(objective)(theta))
    mixed = torch.func.jacrev(torch.func.grad(inner), argnums=1)(theta, weights, 0)
    slope, direct = torch.func.grad(outer, argnums=(0, 1))(theta, weights)
    return Solved(torch.func.hessian(objective)(theta), mixed, slope, direct, theta, weights)


def test_a_long_exact_unroll_is_the_implicit_gradient(solved: Solved) -> None:
    assert solved.error("flat_unroll", 1, steps=200) <= 1e-6


def test_neumann_converges_to_the_implicit_gradient(solved: Solved) -> None:
    errors = [solved.error("neumann", terms) for terms in (1, 2, 4, 8, 16, 32, 64)]
    assert all(later < earlier for earlier, later in pairwise(errors))
    assert errors[0] > 0.05
    assert errors[-1] <= 1e-6


def test_neumann_sums_the_series_at_the_inverse_of_the_largest_eigenvalue(solved: Solved) -> None:
    scale = 1 / torch.linalg.eigvalsh(solved.hessian).max()
    contraction = torch.eye(6, dtype=torch.double) - scale * solved.hessian
    total = sum(scale * torch.linalg.matrix_power(contraction, j) @ solved.slope for j in range(3))
    expected = solved.direct - solved.mixed.T @ total
    # Ten power iterations leave an error in the eigenvalue, though a small one.
    torch.testing.assert_close(solved.run("neumann", 3).gradient, expected, rtol=0.02, atol=1e-4)


def test_conjugate_gradient_converges_to_the_implicit_gradient(solved: Solved) -> None:
    errors = [
        solved.error("conjugate_gradient", terms, damping=DAMPING) for terms in (1, 2, 3, 4, 5, 6)
    ]
    assert all(later < earlier for earlier, later in pairwise(errors))
    assert errors[0] > 0.05
    # As many iterations as there are parameters solve the damped system; more do no harm.
    assert errors[-1] <= 1e-8
    assert solved.error("conjugate_gradient", 50, damping=DAMPING) <= 1e-8
    assert solved.error("conjugate_gradient", 50) <= 1e-5


@pytest.mark.parametrize("terms", [1, 7])
def test_one_step_is_its_formula(solved: Solved, terms: int) -> None:
    expected = solved.direct - LR * solved.mixed.T @ solved.slope
    torch.testing.assert_close(
        solved.run("one_step", terms).gradient, expected, rtol=1e-10, atol=1e-12
    )


def test_implicit_engines_look_at_the_end_and_at_the_last_step(make_case) -> None:
    case = make_case("mixed", SGD(momentum=0.9), 4)
    end = case.trained(case.outer)[0].detach()
    mixed = torch.func.jacrev(torch.func.grad(case.problem.loss), argnums=1)(end, case.outer, 3)
    slope, direct = torch.func.grad(case.outer_loss, argnums=(0, 1))(end, case.outer)
    expected = direct - case.problem.lr * mixed.T @ slope
    torch.testing.assert_close(case.run("one_step").gradient, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("engine", "bend"),
    [("neumann", 0.0), ("conjugate_gradient", 0.0), ("conjugate_gradient", -1.0)],
)
def test_without_positive_curvature_it_is_one_step(engine: str, bend: float) -> None:
    start, u = torch.tensor([1.0, 2.0]), torch.tensor([0.5, -1.0])
    problem = InnerProblem(
        lambda theta, u, _: bend * theta.square().sum() + theta @ u,
        SGD(momentum=0.0),
        torch.tensor(0.1),
        torch.tensor(0.0),
        1,
    )
    state = problem.optimiser.initial(start)
    found, plain = (
        make_engine(name, 4).hypergradient(
            problem, lambda theta, _: theta.square().sum(), start, state, u
        )
        for name in (engine, "one_step")
    )
    assert torch.equal(found.gradient, plain.gradient)
