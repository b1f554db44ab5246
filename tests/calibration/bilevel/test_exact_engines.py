"""Exact engines against finite differences, autograd through the optimiser, and each other."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from calibration.bilevel import ENGINES
from calibration.optimisers import SGD, Adam, Optimiser

OPTIMISERS = [Adam(), SGD(momentum=0.9), SGD(momentum=0.8, nesterov=True), SGD(momentum=0.0)]
EXACT = [name for name in ENGINES if ENGINES[name].exact]
OURS = ["adjoint", "flat_unroll"]


def test_the_exact_engines_are_these() -> None:
    assert EXACT == ["adjoint", "flat_unroll", "unroll"]


def distance(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def finite_differences(case, size: float = 1e-5) -> Tensor:
    def value(u: Tensor) -> Tensor:
        return case.outer_loss(case.trained(u)[0].detach(), u)

    steps = size * torch.eye(len(case.outer), dtype=torch.double)
    return torch.stack(
        [(value(case.outer + s) - value(case.outer - s)) / (2 * size) for s in steps]
    )


def by_autograd(case) -> Tensor:
    u = case.outer.clone().requires_grad_()
    return torch.autograd.grad(case.outer_loss(case.trained(u)[0], u), u)[0]


@pytest.mark.parametrize("kind", ["weights", "mixed"])
@pytest.mark.parametrize("steps", [1, 5, 20])
@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=str)
def test_exact_engines_agree_with_finite_differences_and_each_other(
    make_case, kind: str, steps: int, optimiser: Optimiser
) -> None:
    case = make_case(kind, optimiser, steps)
    numeric, automatic = finite_differences(case), by_autograd(case)
    found = {name: case.run(name).gradient for name in EXACT}
    for gradient in found.values():
        assert distance(gradient, numeric) <= 1e-4
    for name in OURS:
        assert distance(found[name], automatic) <= 1e-8
    assert distance(found["flat_unroll"], found["adjoint"]) <= 1e-8
    assert distance(found["unroll"], automatic) <= 1e-4


@pytest.mark.parametrize("name", OURS)
def test_adam_from_its_first_step_on(make_case, name: str) -> None:
    case = make_case("weights", Adam(), 5, warm=False)
    assert distance(case.run(name).gradient, by_autograd(case)) <= 1e-8


@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=str)
@pytest.mark.parametrize("name", [*ENGINES])
def test_every_engine_ends_where_plain_training_ends(
    make_case, name: str, optimiser: Optimiser
) -> None:
    case = make_case("mixed", optimiser, 7)
    parameters, state = case.trained(case.outer)
    last = make_case("mixed", optimiser, 6).trained(case.outer)[0]
    found = case.run(name, terms=3)
    close = {"rtol": 1e-4, "atol": 1e-6} if name == "unroll" else {"rtol": 1e-10, "atol": 1e-12}
    torch.testing.assert_close(found.parameters, parameters.detach(), **close)
    torch.testing.assert_close(found.optimiser, {k: v.detach() for k, v in state.items()}, **close)
    torch.testing.assert_close(
        found.inner_loss, case.problem.loss(last, case.outer, 6).detach(), **close
    )
    torch.testing.assert_close(
        found.value, case.outer_loss(parameters, case.outer).detach(), **close
    )


@pytest.mark.parametrize("terms", [20, 1000])
def test_truncated_is_exact_when_nothing_is_cut(make_case, terms: int) -> None:
    case = make_case("mixed", Adam(), 20)
    exact = case.run("flat_unroll").gradient
    assert torch.equal(case.run("truncated", terms).gradient, exact)


def test_truncated_comes_closer_with_every_few_steps(make_case) -> None:
    case = make_case("weights", SGD(momentum=0.5), 24, lr=0.1)
    exact = case.run("flat_unroll").gradient
    errors = [distance(case.run("truncated", k).gradient, exact) for k in (1, 4, 8, 12, 16, 20, 24)]
    assert all(later < earlier for earlier, later in pairwise(errors))
    assert errors[0] > 0.1
    assert errors[-1] == 0


def test_truncated_takes_the_earlier_steps_for_constant(make_case) -> None:
    case = make_case("weights", Adam(), 7)
    cut = make_case("weights", Adam(), 5)
    theta, state = cut.trained(case.outer)
    problem = case.problem
    u = case.outer.clone().requires_grad_()
    theta, state = theta.detach().requires_grad_(), {k: v.detach() for k, v in state.items()}
    for number in (5, 6):
        (slope,) = torch.autograd.grad(problem.loss(theta, u, number), theta, create_graph=True)
        theta, state = problem.optimiser.update(
            theta, slope, state, lr=problem.lr, weight_decay=problem.weight_decay
        )
    (expected,) = torch.autograd.grad(case.outer_loss(theta, u), u)
    assert distance(case.run("truncated", 2).gradient, expected) <= 1e-10
