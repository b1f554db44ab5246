"""Ensembles of networks: closed forms, and what may not leak into them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from calibration import calibrators, metrics
from calibration.ensembles import Member, evaluate_ensemble, pooled
from calibration.evaluation import LabelledLogits


def member(seed: int, *, scale: float = 3.0, labels: Tensor | None = None) -> Member:
    generator = torch.Generator().manual_seed(seed)
    if labels is None:
        labels = torch.randint(3, (200,), generator=torch.Generator().manual_seed(0))

    def noisy(truth: Tensor) -> LabelledLogits:
        noise = torch.randn(len(truth), 3, generator=generator, dtype=torch.float64)
        return LabelledLogits(scale * (noise + torch.eye(3).double()[truth]), truth)

    own = torch.randint(3, (80,), generator=generator)
    return Member(noisy(own), noisy(labels))


def test_an_ensemble_of_one_network_twice_is_that_network() -> None:
    one = member(1)
    whole, others = evaluate_ensemble("identity", [one, one])
    alone = metrics.panel(one.test.logits.softmax(-1), one.test.labels)
    assert whole.test["nll"] == pytest.approx(alone["nll"])
    assert [each.test["nll"] for each in others] == pytest.approx([alone["nll"]] * 2)


def test_the_pool_is_the_mean_of_probabilities_and_each_part_leaves_one_out() -> None:
    members = [member(seed) for seed in (1, 2, 3)]
    whole, others = evaluate_ensemble("identity", members)
    rows = [each.test.logits.softmax(-1) for each in members]
    labels = members[0].test.labels
    expected = metrics.brier(sum(rows[1:], rows[0]) / 3, labels).item()
    assert whole.test["brier"] == pytest.approx(expected)
    for left_out, part in enumerate(others):
        first, second = (row for number, row in enumerate(rows) if number != left_out)
        expected = metrics.brier((first + second) / 2, labels).item()
        assert part.test["brier"] == pytest.approx(expected)
    # The mean of a convex score is no better than that of the members (Jensen).
    single = sum(metrics.brier(row, labels).item() for row in rows) / 3
    assert whole.test["brier"] < single


def test_each_member_is_calibrated_on_its_own_validation_rows_alone() -> None:
    """Poisoned validation labels of one member reach the pool through that member only."""
    honest = [member(seed) for seed in (1, 2, 3)]
    shuffled = honest[1].validation.labels.roll(1)
    poisoned = Member(LabelledLogits(honest[1].validation.logits, shuffled), honest[1].test)

    def outputs(members: list[Member]) -> list[Tensor]:
        return [
            calibrators.fit("temperature", m.validation.logits, m.validation.labels)(m.test.logits)
            for m in members
        ]

    clean, dirty = outputs(honest), outputs([honest[0], poisoned, honest[2]])
    assert torch.equal(clean[0], dirty[0])
    assert torch.equal(clean[2], dirty[2])
    labels = honest[0].test.labels
    for rows, members in ((clean, honest), (dirty, [honest[0], poisoned, honest[2]])):
        whole, others = evaluate_ensemble("temperature", members)
        assert whole.test["nll"] == pytest.approx(metrics.nll(pooled(rows), labels).item())
        # Without the poisoned one nothing of it is left.
        pair = metrics.nll(pooled([clean[0], clean[2]]), labels).item()
        assert others[1].test["nll"] == pytest.approx(pair)


def test_nothing_is_measured_on_validation_rows() -> None:
    whole, others = evaluate_ensemble("temperature", [member(1), member(2)])
    assert all(each.validation == {} for each in (whole, *others))


def test_what_cannot_be_pooled_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 members, found 1"):
        evaluate_ensemble("identity", [member(1)])
    other = member(2, labels=torch.zeros(200, dtype=torch.long))
    with pytest.raises(ValueError, match="must have the same test rows"):
        evaluate_ensemble("identity", [member(1), other])
    with pytest.raises(ValueError, match="'isotonic_top_label' gives confidences"):
        evaluate_ensemble("isotonic_top_label", [member(1), member(2)])
