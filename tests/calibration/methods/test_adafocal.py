"""AdaFocal: the update of γ, the bins it looks at, and the loss that uses it."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from calibration.methods import Seen, make_method
from calibration.methods.adafocal import held_out_bins, signed_focal_loss, updated_gamma
from calibration.models import Output


def published_rule(gamma: float, gap: float, rate: float) -> float:
    """Ghosh et al. 2022, as their algorithm spells it out, one bin at a time."""
    following = gamma * math.exp(rate * gap if gamma > 0 else -rate * gap)
    if abs(following) < 0.2:
        following = -0.2 if following > 0 else 0.2
    return max(min(following, 20.0), -2.0)


gammas = st.floats(0.2, 20) | st.floats(-2, -0.2)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(gammas, st.floats(-1, 1)), min_size=1), st.floats(0, 30))
def test_gamma_follows_the_published_rule(bins: list[tuple[float, float]], rate: float) -> None:
    gamma, gap = torch.tensor(bins, dtype=torch.double).T
    ours = updated_gamma(gamma, gap, torch.tensor(rate, dtype=torch.double))
    expected = [published_rule(*one, rate) for one in bins]
    torch.testing.assert_close(ours, torch.tensor(expected, dtype=torch.double))


@pytest.mark.parametrize(
    ("gamma", "gap", "after"),
    [
        (1.0, 0.5, math.exp(0.5)),  # over-confident: more focal
        (1.0, -0.5, math.exp(-0.5)),  # under-confident: less
        (0.21, -0.1, -0.2),  # so little that inverse focal takes over
        (-0.2, 0.1, 0.2),  # and back
        (-1.0, -0.5, -math.exp(0.5)),  # inverse and still under-confident: more inverse
        (-1.9, -1.0, -2.0),
        (19.0, 1.0, 20.0),
    ],
)
def test_gamma_by_hand(gamma: float, gap: float, after: float) -> None:
    ours = updated_gamma(torch.tensor([gamma]), torch.tensor([gap]), torch.tensor(1.0))
    assert ours.tolist() == pytest.approx([after])


def seen(p_top: list[float], right: list[bool]) -> Seen:
    """Two-class output with these confidences in class 0."""
    p = torch.tensor(p_top, dtype=torch.double)
    logits = torch.stack([p.log(), (1 - p).log()], dim=-1)
    labels = torch.tensor([0 if r else 1 for r in right])
    return Seen(Output(logits, logits), labels)


def test_bins_hold_equal_numbers_of_held_out_samples() -> None:
    confidence = [0.95, 0.6, 0.7, 0.9, 0.65, 0.8]
    edges, gap = held_out_bins(seen(confidence, [True, False, True, True, True, False]), 3)
    assert edges.tolist() == pytest.approx([0.7, 0.9])
    expected = [(0.6 + 0.65) / 2 - 0.5, (0.7 + 0.8) / 2 - 0.5, (0.9 + 0.95) / 2 - 1.0]
    assert gap.tolist() == pytest.approx(expected)


def test_tied_confidences_do_not_depend_on_the_order_of_rows() -> None:
    one = held_out_bins(seen([0.8] * 4, [True, True, False, False]), 2)
    other = held_out_bins(seen([0.8] * 4, [False, True, False, True]), 2)
    torch.testing.assert_close(one, other)
    assert one[1].tolist() == pytest.approx([0.3, 0.3])


def test_fewer_samples_than_bins_leave_the_empty_bins_alone() -> None:
    edges, gap = held_out_bins(seen([0.9, 0.6], [False, True]), 4)
    assert gap.tolist() == pytest.approx([-0.4, 0.9, 0.0, 0.0])
    assert edges.tolist() == sorted(edges.tolist())


def test_negative_gamma_is_inverse_focal() -> None:
    log_p = torch.tensor([[0.7, 0.3], [0.7, 0.3]], dtype=torch.double).log()
    gamma = torch.tensor([2.0, -1.5], dtype=torch.double)
    losses = signed_focal_loss(log_p, torch.tensor([0, 0]), gamma)
    expected = [-(0.3**2) * math.log(0.7), -(1.7**1.5) * math.log(0.7)]
    assert losses.tolist() == pytest.approx(expected)


def test_the_loss_is_twice_differentiable(rows: tuple[Tensor, Tensor]) -> None:
    logits, labels = rows
    gamma = torch.linspace(-2, 5, 17, dtype=torch.double)

    def loss(x: Tensor) -> Tensor:
        return signed_focal_loss(x, labels, gamma).mean()

    assert torch.autograd.gradcheck(loss, (logits.requires_grad_(),))
    assert torch.autograd.gradgradcheck(loss, (logits,))


def test_saturated_logits_give_finite_losses_and_gradients() -> None:
    logits = (1e4 * torch.eye(3)).requires_grad_()
    for labels in (torch.tensor([0, 1, 2]), torch.tensor([1, 2, 0])):
        for gamma in (-2.0, -0.2, 0.2, 20.0):
            loss = signed_focal_loss(logits, labels, torch.full((3,), gamma)).mean()
            (slope,) = torch.autograd.grad(loss, logits)
            assert bool(loss.isfinite())
            assert bool(slope.isfinite().all())


def test_training_samples_take_the_gamma_of_their_probability(tiny) -> None:
    method = make_method("adafocal", {"bins": 3, "lr": 0.1})
    edges = torch.tensor([0.3, 0.4], dtype=torch.double)
    gamma = torch.tensor([-1.0, 1.0, 3.0], dtype=torch.double)
    start = tiny.start(method)._replace(method={"gamma": gamma, "edges": edges})
    state, records = tiny.step("adafocal", {"bins": 3, "lr": 0.1}, state=start)
    p = tiny.logits(tiny.parameters).softmax(-1)[torch.arange(24), tiny.batch.labels]
    own = torch.tensor([-1.0 if v < 0.3 else 1.0 if v < 0.4 else 3.0 for v in p.tolist()])
    assert own.unique().tolist() == [-1.0, 1.0, 3.0]

    def loss(logits: Tensor) -> Tensor:
        p = logits.softmax(-1)[torch.arange(24), tiny.batch.labels]
        focal = torch.where(own < 0, (1 + p) ** own.abs(), (1 - p) ** own.abs())
        return (-focal * p.log()).mean()

    expected = tiny.parameters - 0.1 * tiny.gradient(loss, tiny.parameters)
    torch.testing.assert_close(state.parameters, expected)
    assert float(records["gamma"]) == pytest.approx(float(own.mean()))


def test_over_confidence_on_held_out_data_raises_gamma_after_the_epoch(tiny) -> None:
    method = make_method("adafocal", {"bins": 2, "rate": 2.0})
    state = tiny.start(method)
    over = seen([0.9, 0.9, 0.7, 0.7], [False, True, False, True])
    after = method.end_epoch(tiny.learner, state, lambda: over, tiny.numbers(method))
    expected = [math.exp(2 * 0.2), math.exp(2 * 0.4)]
    assert after.method["gamma"].tolist() == pytest.approx(expected)
    assert after.method["edges"].tolist() == pytest.approx([0.9])
    assert method.needs_held_out
