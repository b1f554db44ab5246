"""Mixup: the law of its shares and what it mixes with what."""

from __future__ import annotations

import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.nn import functional as F

from calibration.methods.mixup import mixing_share


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_shares_are_beta_distributed(alpha: float) -> None:
    generator = torch.Generator().manual_seed(3)
    shares = [float(mixing_share(alpha, generator)) for _ in range(2000)]
    assert stats.kstest(shares, stats.beta(alpha, alpha).cdf).pvalue > 0.01
    assert stats.kstest(shares, stats.beta(2 * alpha, alpha).cdf).pvalue < 1e-6


def test_shares_are_numbers_at_the_smallest_alpha() -> None:
    generator = torch.Generator().manual_seed(0)
    shares = torch.stack([mixing_share(0.05, generator) for _ in range(2000)])
    assert bool(shares.isfinite().all())


def test_a_step_mixes_the_batch_with_a_permutation_of_itself(tiny) -> None:
    state, records = tiny.step("mixup", {"alpha": 1.0, "lr": 0.1}, seed=5)
    generator = torch.Generator().manual_seed(5)
    share = float(mixing_share(1.0, generator))
    order = torch.randperm(24, generator=generator)
    mixed = share * tiny.batch.inputs + (1 - share) * tiny.batch.inputs[order]
    targets = F.one_hot(tiny.batch.labels, 3).double()
    target = share * targets + (1 - share) * targets[order]
    assert 0.05 < share < 0.95

    def loss(logits: Tensor) -> Tensor:
        return F.cross_entropy(logits, target)

    expected = tiny.parameters - 0.1 * tiny.gradient(loss, tiny.parameters, mixed)
    torch.testing.assert_close(state.parameters, expected)
    torch.testing.assert_close(records["loss"], loss(tiny.logits(tiny.parameters, mixed)))


def test_every_step_draws_anew(tiny) -> None:
    one, _ = tiny.step("mixup", seed=1)
    again, _ = tiny.step("mixup", seed=1)
    other, _ = tiny.step("mixup", seed=2)
    assert torch.equal(one.parameters, again.parameters)
    assert not torch.equal(one.parameters, other.parameters)
