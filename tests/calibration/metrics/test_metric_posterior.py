"""Errors against a known posterior."""

from __future__ import annotations

import pytest
import torch

from calibration import metrics


def posterior(n: int, seed: int = 0) -> torch.Tensor:
    """A two-class posterior whose first class has chance 0.6 + 0.35 u, u uniform."""
    u = torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    first = 0.6 + 0.35 * u
    return torch.stack([first, 1 - first], dim=-1)


def test_the_oracle_has_no_error_at_all() -> None:
    truth = posterior(500)
    assert metrics.true_ce(truth, truth).item() == 0
    assert metrics.posterior_gap(truth, truth).item() == 0


def test_base_rates_are_calibrated_but_far_from_the_posterior() -> None:
    truth = posterior(4000)
    rates = truth.mean(0).expand_as(truth)
    assert metrics.true_ce(rates, truth).item() == pytest.approx(0, abs=1e-12)
    # E|0.775 - (0.6 + 0.35 u)| for uniform u.
    assert metrics.posterior_gap(rates, truth).item() == pytest.approx(0.35 / 4, rel=0.03)


@pytest.mark.parametrize("shift", [0.02, -0.05])
def test_a_constant_shift_is_both_errors(shift: float) -> None:
    truth = posterior(2000)
    moved = truth + torch.tensor([shift, -shift], dtype=torch.float64)
    assert metrics.true_ce(moved, truth).item() == pytest.approx(abs(shift), rel=1e-9)
    assert metrics.posterior_gap(moved, truth).item() == pytest.approx(abs(shift), rel=1e-9)


def test_saturated_wrong_confidence_is_the_mean_gap() -> None:
    """Mass exactly at 1 counts like any other."""
    truth = posterior(1000)
    sure = torch.tensor([1.0, 0.0], dtype=torch.float64).expand_as(truth)
    expected = 1 - truth[:, 0].mean().item()
    assert metrics.true_ce(sure, truth).item() == pytest.approx(expected, rel=1e-9)
    half = torch.where(torch.arange(1000)[:, None] % 2 == 0, sure, truth)
    expected = (1 - truth[::2, 0]).sum().item() / 1000
    assert metrics.true_ce(half, truth).item() == pytest.approx(expected, rel=0.05)


def test_true_ce_is_below_posterior_gap_and_sees_what_labels_show() -> None:
    generator = torch.Generator().manual_seed(1)
    truth = posterior(200_000)
    noise = 0.1 * torch.randn(200_000, generator=generator, dtype=torch.float64)
    first = (truth[:, 0] + noise).clamp(0.51, 0.999)
    predicted = torch.stack([first, 1 - first], dim=-1)
    error, gap = metrics.true_ce(predicted, truth).item(), metrics.posterior_gap(predicted, truth)
    assert error < gap.item()
    labels = (torch.rand(200_000, generator=generator) >= truth[:, 0]).long()
    # With this many labels the binned estimate is near the truth.
    assert metrics.ece(predicted, labels, bins=50).item() == pytest.approx(error, rel=0.1)


def test_batches(draw) -> None:
    truths = torch.stack([posterior(200, seed) for seed in range(3)])
    moved = truths + torch.tensor([0.03, -0.03], dtype=torch.float64)
    assert metrics.true_ce(moved, truths).tolist() == pytest.approx([0.03] * 3)
    assert metrics.posterior_gap(moved, truths).tolist() == pytest.approx([0.03] * 3)
