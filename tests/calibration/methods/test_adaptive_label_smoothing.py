"""Label smoothing by confidence and by class."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from calibration.methods.adaptive_label_smoothing import (
    DECAY,
    class_epsilon,
    confident_epsilon,
    updated_difficulty,
)

HALF, ONE, TWO = (torch.tensor(v, dtype=torch.double) for v in (0.5, 1.0, 2.0))


def test_smoothing_grows_from_none_at_chance_to_epsilon_at_certainty() -> None:
    p = torch.tensor([[0.25, 0.25, 0.25, 0.25], [0.55, 0.15, 0.15, 0.15], [1, 0, 0, 0]])
    epsilon = confident_epsilon(p.double().log().clamp_min(-50), HALF, TWO)
    expected = torch.tensor([0.0, 0.5 * 0.4**2, 0.5], dtype=torch.double)
    torch.testing.assert_close(epsilon, expected, atol=1e-7, rtol=1e-6)


def test_confidence_only_sets_the_target_and_carries_no_gradient(tiny) -> None:
    hyperparameters = {"epsilon": 0.3, "strength": 1.5, "lr": 0.1}
    state, _ = tiny.step("confidence_label_smoothing", hyperparameters)
    epsilon = confident_epsilon(tiny.logits(tiny.parameters), 0.3 * ONE, 1.5 * ONE)

    def loss(logits: Tensor) -> Tensor:
        target = (1 - epsilon)[:, None] * F.one_hot(tiny.batch.labels, 3) + epsilon[:, None] / 3
        return F.cross_entropy(logits, target)

    expected = tiny.parameters - 0.1 * tiny.gradient(loss, tiny.parameters)
    torch.testing.assert_close(state.parameters, expected)


def test_without_strength_both_are_label_smoothing(tiny) -> None:
    plain, _ = tiny.step("label_smoothing", {"epsilon": 0.2})
    for name in ("confidence_label_smoothing", "class_label_smoothing"):
        state, _ = tiny.step(name, {"epsilon": 0.2, "strength": 0.0})
        torch.testing.assert_close(state.parameters, plain.parameters)


def test_difficulty_is_a_running_mean_counted_in_samples() -> None:
    before = torch.tensor([1.0, 0.6, 0.2], dtype=torch.double)
    p_label = torch.tensor([0.9, 0.5, 0.7], dtype=torch.double)
    after = updated_difficulty(before, p_label, torch.tensor([0, 0, 2]))
    expected = [
        DECAY**2 * 1.0 + (1 - DECAY**2) * (0.1 + 0.5) / 2,
        0.6,  # absent from the batch
        DECAY * 0.2 + (1 - DECAY) * 0.3,
    ]
    torch.testing.assert_close(after, torch.tensor(expected, dtype=torch.double))


def test_difficulty_does_not_depend_on_how_equal_samples_are_batched() -> None:
    start, p_label = torch.ones(2, dtype=torch.double), torch.full((6,), 0.8).double()
    labels = torch.zeros(6, dtype=torch.long)
    at_once = updated_difficulty(start, p_label, labels)
    one_by_one = start
    for i in range(6):
        one_by_one = updated_difficulty(one_by_one, p_label[i : i + 1], labels[i : i + 1])
    torch.testing.assert_close(at_once, one_by_one)


def test_the_hardest_class_gets_epsilon_and_others_less() -> None:
    difficulty = torch.tensor([0.4, 0.1, 0.2], dtype=torch.double)
    expected = torch.tensor([0.5, 0.5 / 16, 0.5 / 4], dtype=torch.double)
    torch.testing.assert_close(class_epsilon(difficulty, HALF, TWO), expected)
    assert bool(class_epsilon(torch.zeros(3), HALF, ONE).isfinite().all())


def test_class_smoothing_uses_what_it_learned_of_the_classes(tiny) -> None:
    first, _ = tiny.step("class_label_smoothing", {"epsilon": 0.3, "lr": 0.1})
    p = tiny.logits(tiny.parameters).softmax(-1)[torch.arange(24), tiny.batch.labels]
    expected = updated_difficulty(torch.ones(3, dtype=torch.double), p, tiny.batch.labels)
    torch.testing.assert_close(first.method["difficulty"], expected)

    second, _ = tiny.step("class_label_smoothing", {"epsilon": 0.3, "lr": 0.1}, state=first)
    epsilon = class_epsilon(expected, 0.3 * ONE, ONE)[tiny.batch.labels, None]

    def loss(logits: Tensor) -> Tensor:
        return F.cross_entropy(
            logits, (1 - epsilon) * F.one_hot(tiny.batch.labels, 3) + epsilon / 3
        )

    torch.testing.assert_close(
        second.parameters, first.parameters - 0.1 * tiny.gradient(loss, first.parameters)
    )
