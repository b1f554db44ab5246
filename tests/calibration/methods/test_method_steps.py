"""What every method's step here has in common, whatever its idea."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from calibration.methods import make_method
from calibration.optimisers import Adam

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "confidence smoothing": ("confidence_label_smoothing", {}),
    "class smoothing": ("class_label_smoothing", {}),
    "adafocal": ("adafocal", {}),
    "mixup": ("mixup", {}),
    "joint beta": ("joint_beta", {}),
    "joint": ("sece", {}),
    "switch": ("dece", {"schedule": "switch"}),
    "interleaved": ("sb_ece", {"schedule": "interleaved"}),
    "balanced": ("mmce", {"schedule": "gradient_balanced"}),
    "multi-objective": ("multi_objective", {}),
    "multi-objective, meta": ("multi_objective", {"weighting": "meta"}),
}


@pytest.mark.parametrize("case", CASES)
def test_steps_are_pure_and_the_same_with_gradients_enabled(make_tiny, case: str) -> None:
    name, hyperparameters = CASES[case]
    tiny = make_tiny(optimiser=Adam(), batch_norm=True)
    method = make_method(name, hyperparameters)
    start = tiny.start(method)
    before = start.parameters.clone(), {k: v.clone() for k, v in start.method.items()}
    plain, records = tiny.step(name, hyperparameters, state=start)
    generator = torch.Generator().manual_seed(0)
    traced, _ = method.step(tiny.learner, start, tiny.batch, tiny.numbers(method), generator)
    torch.testing.assert_close(plain.parameters, traced.parameters)
    torch.testing.assert_close(plain.method, traced.method)
    assert torch.equal(start.parameters, before[0])
    assert start.method.keys() == before[1].keys()
    assert all(torch.equal(start.method[k], v) for k, v in before[1].items())
    assert "loss" in records
    assert not any(v.requires_grad for v in [plain.parameters, *records.values()])
    assert not any(v.requires_grad for v in plain.method.values())
    assert all(v.ndim == 0 and bool(v.isfinite()) for v in records.values())


@pytest.mark.parametrize("case", [c for c in CASES if c != "multi-objective, meta"])
def test_steps_can_be_batched_over_trials(make_tiny, case: str) -> None:
    """Under vmap; the meta-learned weights go through an engine with autograd of its own."""
    name, hyperparameters = CASES[case]
    tiny = make_tiny(optimiser=Adam(), batch_norm=True)
    method = make_method(name, hyperparameters)
    start, numbers = tiny.start(method), tiny.numbers(method)

    def step(parameters: torch.Tensor, lr: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator().manual_seed(0)
        state = start._replace(parameters=parameters)
        after, _ = method.step(tiny.learner, state, tiny.batch, numbers | {"lr": lr}, generator)
        return after.parameters

    starts = torch.stack([tiny.parameters, 1.5 * tiny.parameters, -tiny.parameters])
    rates = torch.tensor([0.001, 0.01, 0.1], dtype=torch.double)
    together = torch.vmap(step, randomness="same")(starts, rates)
    alone = torch.stack([step(p, lr) for p, lr in zip(starts, rates, strict=True)])
    torch.testing.assert_close(together, alone)


@pytest.mark.parametrize(
    ("hyperparameter", "schedule"),
    [("beta", "joint"), ("beta", "interleaved"), ("gradient_share", "gradient_balanced")],
)
def test_steps_can_be_differentiated_in_their_hyperparameters(
    tiny, hyperparameter: str, schedule: str
) -> None:
    method = make_method("mmce", {"schedule": schedule, "lr": 0.1})
    start, numbers = tiny.start(method), tiny.numbers(method)
    generator = torch.Generator()

    def distance(value: torch.Tensor) -> torch.Tensor:
        state, _ = method.step(
            tiny.learner, start, tiny.batch, numbers | {hyperparameter: value}, generator
        )
        return state.parameters.square().sum()

    assert torch.autograd.gradcheck(distance, (numbers[hyperparameter].requires_grad_(),))
