"""Binary discrimination and exclusion constraints, pair by pair."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from calibration.methods import make_method
from calibration.methods.pairwise_constraints import discrimination_loss, exclusion_loss
from calibration.models import Output


@pytest.mark.parametrize("classes", [2, 3, 4, 5, 6])
def test_constraints_are_means_over_pairs(classes: int) -> None:
    generator = torch.Generator().manual_seed(classes)
    logits = 2 * torch.randn(7, classes, generator=generator, dtype=torch.double)
    labels = torch.randint(classes, (7,), generator=generator)
    p = logits.softmax(-1)
    with_label, without = [], []
    for row, label in zip(p, labels.tolist(), strict=True):
        for j, k in itertools.combinations(range(classes), 2):
            first = row[j] / (row[j] + row[k])
            if label in (j, k):
                with_label.append(-(first if label == j else 1 - first).log())
            else:
                without.append(-(first.log() + (1 - first).log()) / 2)
    torch.testing.assert_close(discrimination_loss(logits, labels), torch.stack(with_label).mean())
    expected = torch.stack(without).mean() if without else torch.zeros((), dtype=torch.double)
    torch.testing.assert_close(exclusion_loss(logits, labels), expected)


def test_even_wrong_classes_reach_the_least_exclusion() -> None:
    logits = torch.tensor([[5.0, 1.0, 1.0, 1.0], [2.0, 2.0, -3.0, 2.0]], dtype=torch.double)
    labels = torch.tensor([0, 2])
    assert exclusion_loss(logits, labels).item() == pytest.approx(math.log(2))
    slope = torch.func.grad(exclusion_loss)(logits, labels)
    torch.testing.assert_close(slope, torch.zeros_like(slope))


def test_the_loss_adds_both_to_cross_entropy(rows: tuple[Tensor, Tensor]) -> None:
    logits, labels = rows
    method = make_method("pairwise_constraints", {"discrimination": 0.3, "exclusion": 0.7})
    numbers = method.numbers(dtype=logits.dtype, device=logits.device)
    found = method.loss(Output(logits, logits), labels, numbers)  # type: ignore[attr-defined]
    expected = (
        F.cross_entropy(logits, labels)
        + 0.3 * discrimination_loss(logits, labels)
        + 0.7 * exclusion_loss(logits, labels)
    )
    torch.testing.assert_close(found, expected)
