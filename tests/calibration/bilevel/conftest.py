"""Small bilevel problems in float64, and the training that they stand for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from calibration.bilevel import Hypergradient, InnerProblem, OuterLoss, make_engine
from calibration.optimisers import Optimiser, OptimiserState


@dataclass(frozen=True)
class Case:
    """Everything an engine is given."""

    problem: InnerProblem
    outer_loss: OuterLoss
    parameters: Tensor
    state: OptimiserState
    outer: Tensor

    def run(self, engine: str, terms: int = 5) -> Hypergradient:
        return make_engine(engine, terms).hypergradient(
            self.problem, self.outer_loss, self.parameters, self.state, self.outer
        )

    def trained(self, outer: Tensor) -> tuple[Tensor, OptimiserState]:
        """θ_T and the optimiser's state, step by step; differentiable in ``outer``."""
        theta, state, problem = self.parameters.clone().requires_grad_(), self.state, self.problem
        for number in range(problem.steps):
            with torch.enable_grad():
                loss = problem.loss(theta, outer, number)
            (slope,) = torch.autograd.grad(loss, theta, create_graph=outer.requires_grad)
            theta, state = problem.optimiser.update(
                theta, slope, state, lr=problem.lr, weight_decay=problem.weight_decay
            )
        return theta, state


MakeCase = Callable[..., Case]


@pytest.fixture(scope="session")
def make_case() -> MakeCase:
    return network_case


def network_case(
    kind: str, optimiser: Optimiser, steps: int, *, lr: float = 0.02, warm: bool = True
) -> Case:
    """A 3-4-3 network with a smooth activation, its mini-batches alternating between halves.

    ``weights``: u weighs the samples and appears nowhere else. ``mixed``: u holds a
    meta-network that weighs the samples and log weight decays of two groups of parameters,
    and the outer loss depends on it directly.
    """
    generator = torch.Generator().manual_seed(3)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.double)

    inputs, held_out = normal(8, 3), normal(6, 3)
    labels = torch.randint(3, (8,), generator=generator)
    held_out_labels = torch.randint(3, (6,), generator=generator)

    def logits(theta: Tensor, x: Tensor) -> Tensor:
        w1, b1, w2, b2 = theta.split([12, 4, 12, 3])
        return torch.tanh(x @ w1.view(3, 4) + b1) @ w2.view(4, 3) + b2

    def inner(theta: Tensor, u: Tensor, number: int) -> Tensor:
        rows = torch.arange(number % 2, 8, 2)
        losses = F.cross_entropy(logits(theta, inputs[rows]), labels[rows], reduction="none")
        if kind == "weights":
            return (u[rows] * losses).mean()
        weights = torch.sigmoid(torch.tanh(inputs[rows]) @ u[:3])
        first, second = theta.split([16, 15])
        decay = u[3].exp() * first.square().sum() + u[4].exp() * second.square().sum()
        return (weights * losses).mean() + decay / 2

    def outer(theta: Tensor, u: Tensor) -> Tensor:
        loss = F.cross_entropy(logits(theta, held_out), held_out_labels)
        return loss if kind == "weights" else loss + 0.1 * torch.sin(u).sum()

    u = 0.5 + torch.rand(8, generator=generator, dtype=torch.double)
    if kind == "mixed":
        u = torch.tensor([0.4, -0.3, 0.8, -3.0, -4.0], dtype=torch.double)
    rates = [torch.tensor(v, dtype=torch.double) for v in (lr, 0.03)]
    theta = normal(31)
    case = Case(
        InnerProblem(inner, optimiser, *rates, 3), outer, theta, optimiser.initial(theta), u
    )
    if warm:
        moved, state = case.trained(0.8 * u)
        state = {name: value.detach() for name, value in state.items()}
        case = Case(case.problem, outer, moved.detach(), state, u)
    problem = InnerProblem(inner, optimiser, *rates, steps)
    return Case(problem, outer, case.parameters, case.state, u)
