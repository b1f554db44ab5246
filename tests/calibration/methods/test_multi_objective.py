"""The weighted sum of three losses, and how its weights come about."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from calibration.hyperparameters import SettingError
from calibration.methods import make_method
from calibration.objectives import OBJECTIVES, dece, entropy

LAMBDAS = {"lambda1": 1.5, "lambda2": 0.8, "lambda3": 0.2}
NAMES = ("accuracy", "calibration", "uncertainty")


def weights(records: dict[str, Tensor]) -> list[float]:
    return [float(records[f"weight_{name}"]) for name in NAMES]


def test_fixed_weights_sum_three_losses(tiny) -> None:
    state, records = tiny.step("multi_objective", {"lr": 0.1, **LAMBDAS})
    labels = tiny.batch.labels

    def loss(logits: Tensor) -> Tensor:
        accuracy = F.cross_entropy(logits, labels)
        return 1.5 * accuracy + 0.8 * dece(logits, labels) - 0.2 * entropy(logits).mean()

    expected = tiny.parameters - 0.1 * tiny.gradient(loss, tiny.parameters)
    torch.testing.assert_close(state.parameters, expected)
    torch.testing.assert_close(records["loss"], loss(tiny.logits(tiny.parameters)))
    assert weights(records) == pytest.approx([1.5, 0.8, 0.2])


@pytest.mark.parametrize(("progress", "share"), [(0.0, 0.0), (0.1, 0.25), (0.4, 1.0), (0.9, 1.0)])
def test_scheduled_weights_ramp_up_behind_accuracy(tiny, progress: float, share: float) -> None:
    hyperparameters = {"weighting": "scheduled", "ramp": 0.4, **LAMBDAS}
    _, records = tiny.step("multi_objective", hyperparameters, progress=progress)
    assert weights(records) == pytest.approx([1.5, 0.8 * share, 0.2 * share])


def test_meta_weights_move_down_the_held_out_loss_one_step_ahead(tiny) -> None:
    hyperparameters: dict[str, Any] = {"weighting": "meta", "lr": 0.5, "outer_lr": 0.01, **LAMBDAS}
    method = make_method("multi_objective", hyperparameters)
    start = tiny.start(method)
    state, records = tiny.step("multi_objective", hyperparameters)
    labels, held_out = tiny.batch.labels, tiny.batch.held_out

    def ahead(u: Tensor) -> float:
        """Held-out cross-entropy after one gradient step with these log-weights."""

        def loss(logits: Tensor) -> Tensor:
            accuracy = F.cross_entropy(logits, labels)
            terms = torch.stack([accuracy, dece(logits, labels), -entropy(logits).mean()])
            return 2.5 * u.softmax(-1) @ terms

        parameters = tiny.parameters - 0.5 * tiny.gradient(loss, tiny.parameters)
        return float(F.cross_entropy(tiny.logits(parameters, held_out.inputs), held_out.labels))

    u = start.method["u"]
    nudges = 1e-5 * torch.eye(3, dtype=torch.double)
    slope = torch.tensor([(ahead(u + n) - ahead(u - n)) / 2e-5 for n in nudges])
    # Adam's first step has length lr and the gradient's sign; its first moment the gradient.
    torch.testing.assert_close(state.method["u"] - u, -0.01 * slope.sign().double())
    torch.testing.assert_close(state.method["u_mean"], 0.1 * slope.double(), rtol=1e-4, atol=1e-9)
    assert weights(records) == pytest.approx((2.5 * state.method["u"].softmax(-1)).tolist())
    assert sum(weights(records)) == pytest.approx(2.5)


def test_meta_weights_start_at_the_lambdas_and_the_real_step_uses_the_new_ones(tiny) -> None:
    hyperparameters: dict[str, Any] = {"weighting": "meta", "lr": 0.1, "outer_lr": 0.1, **LAMBDAS}
    start = tiny.start(make_method("multi_objective", hyperparameters))
    expected = torch.tensor([1.5, 0.8, 0.2]).double() / 2.5
    torch.testing.assert_close(start.method["u"].softmax(-1), expected)
    state, records = tiny.step("multi_objective", hyperparameters)
    names = ("lambda1", "lambda2", "lambda3")
    fixed, _ = tiny.step(
        "multi_objective", {"lr": 0.1} | dict(zip(names, weights(records), strict=True))
    )
    torch.testing.assert_close(state.parameters, fixed.parameters)


def test_only_meta_needs_held_out_data() -> None:
    for weighting in ("fixed", "scheduled", "meta"):
        method = make_method("multi_objective", {"weighting": weighting})
        assert method.needs_held_out == (weighting == "meta")


def test_any_registered_objective_can_be_named(tiny) -> None:
    for name in OBJECTIVES:
        state, _ = tiny.step("multi_objective", {"calibration": name})
        assert bool(state.parameters.isfinite().all())
    with pytest.raises(SettingError, match=r"calibration.*unknown objective 'dec'.*'dece'"):
        make_method("multi_objective", {"calibration": "dec"})
