"""Focal losses and their kin against their formulas, one sample at a time."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from sklearn.utils.class_weight import compute_sample_weight
from torch import Tensor
from torch.nn import functional as F

from calibration.methods import LossMethod, make_method
from calibration.methods.dual_focal import dual_focal_loss
from calibration.models import Output

Rows = tuple[Tensor, Tensor]


def loss_of(name: str, logits: Tensor, labels: Tensor, **hyperparameters: Any) -> Tensor:
    method = make_method(name, hyperparameters)
    assert isinstance(method, LossMethod)
    numbers = method.numbers(dtype=logits.dtype, device=logits.device)
    return method.loss(Output(logits, logits), labels, numbers)


def probabilities(rows: Rows) -> list[tuple[list[float], int]]:
    logits, labels = rows
    return list(zip(logits.softmax(-1).tolist(), labels.tolist(), strict=True))


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def test_flsd_takes_5_below_a_fifth_and_3_above(rows: Rows) -> None:
    expected = [
        -((1 - p[y]) ** (5 if p[y] < 0.2 else 3)) * math.log(p[y]) for p, y in probabilities(rows)
    ]
    assert {p[y] < 0.2 for p, y in probabilities(rows)} == {True, False}
    assert float(loss_of("flsd", *rows)) == pytest.approx(mean(expected), rel=1e-12)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_focal_weighs_classes_by_inverse_frequency(rows: Rows, exponent: float) -> None:
    logits, labels = rows
    weights = torch.tensor(compute_sample_weight("balanced", labels.numpy())) ** exponent
    p = logits.softmax(-1)[torch.arange(17), labels]
    expected = (weights / weights.mean() * (1 - p) ** 2 * -p.log()).mean()
    ours = loss_of("focal", logits, labels, gamma=2.0, class_balance=exponent)
    torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("gamma", [0.0, 1.0, 5.0])
def test_dual_focal_looks_at_the_next_lower_probability(rows: Rows, gamma: float) -> None:
    expected = []
    for p, y in probabilities(rows):
        below = max((q for q in p if q < p[y]), default=0.0)
        expected.append(-((1 - p[y] + below) ** gamma) * math.log(p[y]))
    lowest = [min(p) == p[y] for p, y in probabilities(rows)]
    assert set(lowest) == {True, False}
    assert float(loss_of("dual_focal", *rows, gamma=gamma)) == pytest.approx(
        mean(expected), rel=1e-12
    )


def test_dual_focal_of_tied_classes_has_no_runner_up() -> None:
    logits, label, gamma = torch.zeros(1, 3), torch.tensor([1]), torch.tensor(2.0)
    expected = torch.tensor([(2 / 3) ** 2 * math.log(3)])
    torch.testing.assert_close(dual_focal_loss(logits, label, gamma), expected)


def test_dual_focal_carries_gradient_through_the_runner_up() -> None:
    # With three classes, only p_j depends on how the rest is shared out between the others.
    log_p = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.double).log().requires_grad_()
    loss = dual_focal_loss(log_p, torch.tensor([0]), torch.tensor(1.0))
    (slope,) = torch.autograd.grad(loss.sum(), log_p)
    # d/dl_2 of (1 − p_0 + p_1)(−log p_0): p_0 p_2 and −p_1 p_2 in the factor, p_2 in the log.
    expected = (0.5 * 0.2 - 0.3 * 0.2) * math.log(2) + 0.8 * 0.2
    assert float(slope[0, 2]) == pytest.approx(expected, rel=1e-12)


def test_two_term_form_adds_the_largest_wrong_class(rows: Rows) -> None:
    hyperparameters = {"gamma": 1.5, "alpha1": 0.7, "alpha2": 1.3, "gamma2": 2.5}
    expected = []
    for p, y in probabilities(rows):
        wrong = max(q for k, q in enumerate(p) if k != y)
        first = -0.7 * (1 - p[y]) ** 1.5 * math.log(p[y])
        expected.append(first - 1.3 * (1 - wrong) ** 2.5 * math.log(1 - wrong))
    ours = loss_of("dual_focal", *rows, form="two_term", **hyperparameters)
    assert float(ours) == pytest.approx(mean(expected), rel=1e-10)


def test_two_term_form_is_twice_differentiable(rows: Rows) -> None:
    def loss(x: Tensor) -> Tensor:
        return loss_of("dual_focal", x, rows[1], form="two_term")

    logits = rows[0].requires_grad_()
    assert torch.autograd.gradcheck(loss, (logits,))
    assert torch.autograd.gradgradcheck(loss, (logits,))


@pytest.mark.parametrize("scale", [0.0, 40.0, 1e4])
def test_two_term_form_is_finite_at_saturated_logits(scale: float) -> None:
    logits = (scale * torch.eye(3)).requires_grad_()
    for labels in (torch.tensor([0, 1, 2]), torch.tensor([1, 2, 0])):
        loss = loss_of("dual_focal", logits, labels, form="two_term")
        (slope,) = torch.autograd.grad(loss, logits)
        assert bool(loss.isfinite())
        assert bool(slope.isfinite().all())


def test_margin_smoothing_charges_for_gaps_above_the_margin(rows: Rows) -> None:
    logits, labels = rows
    excess = [max(0.0, max(row) - value - 4.0) for row in logits.tolist() for value in row]
    assert min(excess) == 0 < max(excess)
    expected = float(F.cross_entropy(logits, labels)) + 0.3 * mean(excess)
    ours = loss_of("margin_label_smoothing", logits, labels, margin=4.0, alpha=0.3)
    assert float(ours) == pytest.approx(expected, rel=1e-12)


def test_focal_label_smoothing_agrees_with_its_formula_and_limits(rows: Rows) -> None:
    def ours(gamma: float, epsilon: float) -> Tensor:
        return loss_of("focal_label_smoothing", *rows, gamma=gamma, epsilon=epsilon)

    expected = []
    for p, y in probabilities(rows):
        target = [0.8 * (k == y) + 0.2 / len(p) for k in range(len(p))]
        terms = [-q * (1 - v) ** 2 * math.log(v) for q, v in zip(target, p, strict=True)]
        expected.append(sum(terms))
    assert float(ours(2.0, 0.2)) == pytest.approx(mean(expected), rel=1e-12)
    torch.testing.assert_close(ours(0.0, 0.2), F.cross_entropy(*rows, label_smoothing=0.2))
    torch.testing.assert_close(ours(2.0, 0.0), loss_of("focal", *rows, gamma=2.0))
