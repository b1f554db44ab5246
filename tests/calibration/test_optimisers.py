"""Our functional optimisers against torch.optim, and their derivatives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from calibration.optimisers import SGD, Adam, Optimiser

LR, DECAY = torch.tensor(0.03, dtype=torch.double), torch.tensor(0.01, dtype=torch.double)


def gradient(parameters: Tensor) -> Tensor:
    return torch.sin(3 * parameters) + parameters**3


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (
            Adam(eps_root=0.0),
            lambda p: torch.optim.Adam([p], lr=LR, weight_decay=DECAY),
        ),
        (
            SGD(momentum=0.9),
            lambda p: torch.optim.SGD([p], lr=float(LR), momentum=0.9, weight_decay=float(DECAY)),
        ),
        (
            SGD(momentum=0.8, nesterov=True),
            lambda p: torch.optim.SGD(
                [p], lr=float(LR), momentum=0.8, nesterov=True, weight_decay=float(DECAY)
            ),
        ),
    ],
)
def test_a_hundred_steps_agree_with_torch(ours: Optimiser, theirs) -> None:
    start = torch.linspace(-2, 2, 11, dtype=torch.double)
    parameters, state = start, ours.initial(start)
    reference = start.clone().requires_grad_()
    optimiser = theirs(reference)
    for _ in range(100):
        parameters, state = ours.update(
            parameters, gradient(parameters), state, lr=LR, weight_decay=DECAY
        )
        reference.grad = gradient(reference.detach())
        optimiser.step()
    torch.testing.assert_close(parameters, reference.detach(), rtol=1e-10, atol=1e-12)


def test_the_default_eps_root_cannot_be_seen_at_ordinary_gradients() -> None:
    start = torch.linspace(-2, 2, 10, dtype=torch.double)
    moved = [
        a.update(start, gradient(start), a.initial(start), lr=LR, weight_decay=DECAY)[0]
        for a in (Adam(), Adam(eps_root=0.0))
    ]
    torch.testing.assert_close(moved[0], moved[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("optimiser", [Adam(eps_root=1e-6), SGD(), SGD(nesterov=True)])
def test_two_steps_are_differentiable_in_everything(optimiser: Optimiser) -> None:
    def two_steps(parameters: Tensor, lr: Tensor, decay: Tensor) -> Tensor:
        state = optimiser.initial(parameters)
        for _ in range(2):
            parameters, state = optimiser.update(
                parameters, gradient(parameters), state, lr=lr, weight_decay=decay
            )
        return parameters

    inputs = [
        torch.tensor(v, dtype=torch.double, requires_grad=True) for v in ([0.3, -1.2], 0.1, 0.02)
    ]
    assert torch.autograd.gradcheck(two_steps, inputs)


def test_a_dead_unit_gives_no_nan_in_the_derivative_of_adam() -> None:
    lr = torch.tensor(0.1, requires_grad=True)
    parameters = torch.zeros(3, requires_grad=True)
    adam = Adam()
    state = adam.initial(parameters)
    dead = parameters * torch.tensor([0.0, 1.0, 2.0])
    moved, _ = adam.update(parameters, dead, state, lr=lr, weight_decay=torch.tensor(0.0))
    grads = torch.autograd.grad(moved.sum(), [lr, parameters])
    assert all(bool(g.isfinite().all()) for g in grads)


@pytest.mark.parametrize(
    "optimiser", [Adam(), Adam(beta1=0.0), SGD(), SGD(momentum=0.7, nesterov=True)], ids=str
)
@pytest.mark.parametrize("steps_before", [0, 4])
def test_linearise_is_the_update_and_autograd_through_it(
    optimiser: Optimiser, steps_before: int
) -> None:
    def normal() -> Tensor:
        return torch.randn(9, dtype=torch.double, generator=generator)

    generator = torch.Generator().manual_seed(0)
    parameters, state = normal(), optimiser.initial(normal())
    for _ in range(steps_before):
        parameters, state = optimiser.update(parameters, normal(), state, lr=LR, weight_decay=DECAY)
    slope = normal()
    parameters[0] = slope[0] = 0.0  # a dead unit's
    vectors = [name for name, value in state.items() if value.dim()]
    inputs = [v.requires_grad_() for v in (parameters, slope, *(state[n] for n in vectors))]
    moved, after = optimiser.update(parameters, slope, state, lr=LR, weight_decay=DECAY)
    outputs = [moved, *(after[name] for name in vectors)]
    bars = [normal() for _ in outputs]
    expected = torch.autograd.grad(outputs, inputs, bars)

    with torch.no_grad():
        value, value_after, pullback = optimiser.linearise(
            parameters, slope, state, lr=LR, weight_decay=DECAY
        )
        bar, slope_bar, state_bar = pullback(bars[0], dict(zip(vectors, bars[1:], strict=True)))
    assert value_after.keys() == after.keys()
    found = [value, *value_after.values(), bar, slope_bar, *(state_bar[n] for n in vectors)]
    for one, other in zip(found, [moved, *after.values(), *expected], strict=True):
        torch.testing.assert_close(one, other.detach(), rtol=1e-10, atol=1e-12)
