"""Histogram bins that are really learned: what moves them, and what they may not do."""

from __future__ import annotations

import torch
from torch import Tensor

from calibration.methods import make_method
from calibration.methods.learned_histogram import better_bins, density, initial_bins, projected
from calibration.methods.side_variables import side_variable
from calibration.objectives import soft_memberships

LIKE = torch.zeros((), dtype=torch.double)


def confidences(n: int, generator: torch.Generator) -> Tensor:
    """Mostly near 1, with the density 9z⁸."""
    return torch.rand(n, generator=generator, dtype=torch.double) ** (1 / 9)


def test_bins_come_to_describe_the_confidences() -> None:
    generator = torch.Generator().manual_seed(0)
    state, rate = side_variable("bins", initial_bins(15, LIKE)), torch.tensor(0.01).double()
    for _ in range(300):
        state = better_bins(state, confidences(64, generator), rate)
    fresh = confidences(20_000, torch.Generator().manual_seed(1))
    entropy = -(9 * fresh**8).log().mean()
    learned, equal = (
        -density(bins, fresh).clamp_min(1e-6).log().mean()
        for bins in (state["bins"], initial_bins(15, LIKE))
    )
    # No density describes them better than their own; the learned one comes close.
    assert entropy < learned < entropy + 0.2
    assert equal > entropy + 1


def test_the_density_is_one() -> None:
    """Bins within [0, 1] integrate to 1."""
    bins = torch.tensor([[0.3, 0.5, 0.9], [0.2, 0.4, 0.05]], dtype=torch.double)
    mesh = (torch.arange(10_000, dtype=torch.double) + 0.5) / 10_000
    torch.testing.assert_close(density(bins, mesh).mean(), torch.ones_like(LIKE))


def test_every_confidence_belongs_to_a_bin_wherever_they_go() -> None:
    generator = torch.Generator().manual_seed(0)
    confidence = torch.linspace(0, 1, 1001, dtype=torch.double)
    for bins in (1, 2, 7):
        for _ in range(50):
            wild = 3 * torch.randn(2, bins, generator=generator, dtype=torch.double)
            valid = projected(wild)
            centres, widths = valid
            # An outermost bin is 1/5 high at the end of [0, 1]; elsewhere they add up to 1.
            assert (soft_memberships(confidence, centres, widths).sum(-1) > 0.19).all()
            assert (centres.diff() >= 0).all()
            torch.testing.assert_close(projected(valid), valid)


def test_equally_spaced_bins_are_valid_as_they_are() -> None:
    start = initial_bins(15, LIKE)
    torch.testing.assert_close(projected(start), start)


def test_a_step_moves_the_bins_that_the_next_step_uses(tiny) -> None:
    first, _ = tiny.step("learned_histogram", {"bins_lr": 0.05})
    start = tiny.start(make_method("learned_histogram", {}))
    for moved, before in zip(first.method["bins"], start.method["bins"], strict=True):
        assert not torch.equal(moved, before)
    frozen = first._replace(method=start.method)
    _, learned = tiny.step("learned_histogram", {}, state=first)
    _, fixed = tiny.step("learned_histogram", {}, state=frozen)
    assert learned["objective"] != fixed["objective"]
    torch.testing.assert_close(learned["base"], fixed["base"])
