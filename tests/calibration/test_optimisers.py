"""Our functional optimisers against torch.optim, and their derivatives."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from calibration.optimiser_steps import AVERAGE, Averaged, Clipped, TwoRates, averaged
from calibration.optimisers import (
    SGD,
    Adam,
    AdamW,
    Optimiser,
    OptimiserState,
    OwnOptimiser,
    make_optimiser,
)
from calibration.registry import UnknownNameError

LR, DECAY = torch.tensor(0.03, dtype=torch.double), torch.tensor(0.01, dtype=torch.double)


@dataclass(frozen=True)
class Own(OwnOptimiser):
    """Heavy-ball momentum as a user would write it."""

    momentum: float = 0.9

    def initial(self, parameters: Tensor) -> OptimiserState:
        return {"velocity": torch.zeros_like(parameters), "step": torch.zeros(())}

    def update(
        self,
        parameters: Tensor,
        gradient: Tensor,
        state: OptimiserState,
        *,
        lr: Tensor,
        weight_decay: Tensor,
    ) -> tuple[Tensor, OptimiserState]:
        velocity = self.momentum * state["velocity"] + gradient + weight_decay * parameters
        return parameters - lr * velocity, {"velocity": velocity, "step": state["step"] + 1}


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
            AdamW(eps_root=0.0),
            lambda p: torch.optim.AdamW([p], lr=float(LR), weight_decay=float(DECAY)),
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


@pytest.mark.parametrize(
    "optimiser",
    [
        Adam(eps_root=1e-6),
        AdamW(eps_root=1e-6),
        SGD(),
        SGD(nesterov=True),
        Clipped(SGD(), 0.5),
        Averaged(SGD(), 0.9),
        TwoRates(Adam(), 2, 0.3),
        TwoRates(SGD(), 2, 0.0),
    ],
    ids=str,
)
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
    "optimiser",
    [
        Adam(),
        Adam(beta1=0.0),
        AdamW(),
        SGD(),
        SGD(momentum=0.7, nesterov=True),
        Own(),
        Clipped(Adam(), 0.5),
        Clipped(AdamW(), 100.0),
        Averaged(Clipped(Own(), 1.0), 0.9),
        Averaged(Clipped(TwoRates(AdamW(), 2, 0.3), 1.0), 0.9),
        TwoRates(SGD(nesterov=True), 1, 0.0),
    ],
    ids=str,
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
    bars = [normal()[: len(output)] for output in outputs]
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


@pytest.mark.parametrize("norm", [0.5, 3.0, 1e3])
def test_clipping_and_averaging_agree_with_torch(norm: float) -> None:
    """On two parts of the parameters: it is the norm of all together."""
    start = torch.linspace(-2, 2, 11, dtype=torch.double)
    ours = Averaged(Clipped(AdamW(eps_root=0.0), norm), 0.9)
    parameters, state = start, ours.initial(start)
    module = torch.nn.ParameterList([start[:4].clone(), start[4:].clone()])
    theirs = torch.optim.AdamW(module.parameters(), lr=float(LR), weight_decay=float(DECAY))
    average = AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    average.update_parameters(module)  # the first call copies

    for _ in range(50):
        parameters, state = ours.update(
            parameters, gradient(parameters), state, lr=LR, weight_decay=DECAY
        )
        for part in module:
            part.grad = gradient(part.detach())
        torch.nn.utils.clip_grad_norm_(module.parameters(), norm)
        theirs.step()
        average.update_parameters(module)
    close = {"rtol": 1e-10, "atol": 1e-12}
    torch.testing.assert_close(parameters, torch.cat([*module]).detach(), **close)
    found = averaged(parameters, state)
    torch.testing.assert_close(found, torch.cat([*average.module]).detach(), **close)
    assert not torch.allclose(found, parameters, rtol=1e-3)
    assert found is state[AVERAGE]


def test_each_member_is_clipped_by_its_own_norm() -> None:
    clipped = Clipped(SGD(momentum=0.0), 1.0)
    slopes = torch.tensor([[0.3, 0.4], [30.0, 40.0], [0.0, 0.0]])
    zero, lr = torch.zeros(()), torch.ones(())
    start = torch.zeros(3, 2)
    state = clipped.initial(start)

    def step(parameters: Tensor, slope: Tensor, velocity: Tensor) -> Tensor:
        return clipped.update(parameters, slope, {"velocity": velocity}, lr=lr, weight_decay=zero)[
            0
        ]

    moved = torch.vmap(step)(start, slopes, state["velocity"])
    torch.testing.assert_close(moved, -torch.tensor([[0.3, 0.4], [0.6, 0.8], [0.0, 0.0]]))


def test_a_gradient_of_zeros_is_clipped_without_nan_in_the_derivative() -> None:
    slope = torch.zeros(3, requires_grad=True)
    found = Clipped(SGD(), 1.0)._clipped(slope).sum()
    assert bool(torch.autograd.grad(found, slope)[0].isfinite().all())


def test_optimisers_are_found_by_name_and_by_import_path() -> None:
    assert make_optimiser("nesterov", 0.5) == SGD(momentum=0.5, nesterov=True)
    assert make_optimiser("adamw", 0.5) == AdamW()
    assert make_optimiser(f"{__name__}:Own", 0.5).momentum == 0.5  # type: ignore[attr-defined]
    with pytest.raises(UnknownNameError, match="or 'adamw'"):
        make_optimiser("adamv", 0.9)
    with pytest.raises(ValueError, match="no 'version'"):
        make_optimiser("collections:Counter", 0.9)
    with pytest.raises(ValueError, match="need defaults"):
        make_optimiser("torch.optim:AdamW", 0.9)
