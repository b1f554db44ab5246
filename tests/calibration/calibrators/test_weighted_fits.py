"""Weights of rows: whole numbers are as good as repeated rows, and 0 is as good as absent."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from calibration import calibrators
from calibration.calibrators import CALIBRATORS

UNWEIGHTED = {"bbq", "cdf_spline", "kernel", "spline", "venn_abers"}


@pytest.fixture(scope="module", params=[2, 4])
def rows(request: pytest.FixtureRequest) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(request.param)
    logits = 3 * torch.randn(150, request.param, generator=generator, dtype=torch.float64)
    labels = torch.multinomial((0.4 * logits).softmax(-1), 1, generator=generator).squeeze(1)
    return logits, labels, torch.randint(0, 4, (150,), generator=generator)


def test_who_cannot_weigh_is_listed() -> None:
    assert {name for name in CALIBRATORS if not CALIBRATORS[name].weighted} == UNWEIGHTED


@pytest.mark.parametrize("name", sorted(set(CALIBRATORS) - UNWEIGHTED - {"identity"}))
def test_whole_weights_are_repeated_rows(name: str, rows: tuple[Tensor, Tensor, Tensor]) -> None:
    logits, labels, times = rows
    repeated = torch.arange(len(labels)).repeat_interleave(times)
    weighted = calibrators.fit(name, logits, labels, times.double())(logits)
    expected = calibrators.fit(name, logits[repeated], labels[repeated])(logits)
    # Minimisers stop within a tolerance of the optimum, in an order of their own.
    torch.testing.assert_close(weighted, expected, rtol=1e-4, atol=1e-6)
    unweighted = calibrators.fit(name, logits, labels)(logits)
    assert not torch.allclose(weighted, unweighted, atol=1e-3)


@pytest.mark.parametrize("name", sorted(UNWEIGHTED))
def test_who_cannot_weigh_fits_without(name: str, rows: tuple[Tensor, Tensor, Tensor]) -> None:
    logits, labels, times = rows
    given = calibrators.fit(name, logits, labels, times.double())(logits)
    torch.testing.assert_close(given, calibrators.fit(name, logits, labels)(logits))


def test_sure_rows_ask_for_caution_by_weight() -> None:
    logits = torch.tensor([[3.0, 0.0], [0.0, 2.0]], dtype=torch.float64)
    labels = torch.tensor([0, 1])
    weighted = calibrators.fit("temperature", logits, labels, torch.tensor([3.0, 1.0]))
    expected = calibrators.fit("temperature", logits[[0, 0, 0, 1]], labels[[0, 0, 0, 1]])
    torch.testing.assert_close(weighted(logits), expected(logits))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (torch.ones(3), r"weights must be a tensor of shape \(2,\), found \(3,\)"),
        (torch.tensor([1.0, -1.0]), r"not negative, found -1 in row 1"),
        (torch.tensor([torch.nan, 1.0]), r"found nan in row 0"),
        (torch.zeros(2), r"all 2 weights are 0"),
    ],
)
def test_bad_weights_are_refused(weights: Tensor, message: str) -> None:
    logits = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(ValueError, match=message):
        calibrators.fit("temperature", logits, torch.tensor([0, 0]), weights)
