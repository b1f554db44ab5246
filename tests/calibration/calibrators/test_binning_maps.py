from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from netcal.binning import HistogramBinning
from scipy.special import expit

from calibration import calibrators
from calibration.calibrators.histogram import bin_means, equal_mass_edges


def two_columns(p: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.stack([np.log1p(-p), np.log(p)], axis=1))


@pytest.fixture
def drawn() -> tuple[np.ndarray, torch.Tensor]:
    random = np.random.default_rng(0)
    p = random.uniform(0.01, 0.99, size=700)
    return p, torch.from_numpy((random.uniform(size=700) < p**2).astype(np.int64))


def test_equal_width_matches_netcal(drawn) -> None:
    p, labels = drawn
    theirs = HistogramBinning(bins=15).fit(p, labels.numpy())
    logits = two_columns(p)
    found = calibrators.fit("histogram_width", logits, labels)(logits)[:, 1]
    np.testing.assert_allclose(found, theirs.transform(p), atol=1e-12)


def test_equal_mass_is_the_mean_of_each_fifteenth(drawn) -> None:
    p, labels = drawn
    order = np.argsort(p)
    # 700 samples split by rank: the first 700·m//15 lie left of the m-th edge.
    parts = np.split(order, [700 * m // 15 for m in range(1, 15)])
    expected = np.empty(700)
    for part in parts:
        expected[part] = labels.numpy()[part].mean()
    logits = two_columns(p)
    found = calibrators.fit("histogram_mass", logits, labels)(logits)[:, 1]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_values_on_an_edge_belong_to_the_left_bin() -> None:
    bins = bin_means(np.array([0.2, 0.5, 0.7]), np.array([0.0, 1.0, 0.0]), np.array([0.5]))
    np.testing.assert_allclose(bins(np.array([0.0, 0.5, 0.50001, 1.0])), [0.5, 0.5, 0.0, 0.0])


def test_empty_bins_leave_probabilities_as_they_are() -> None:
    logits = two_columns(np.array([0.05, 0.95] * 6))
    fitted = calibrators.fit("histogram_width", logits, torch.tensor([0, 1] * 6))
    found = fitted(two_columns(np.array([0.5, 0.05])))[:, 1]
    np.testing.assert_allclose(found, [0.5, 0.0], atol=1e-12)


def test_ties_are_never_split_between_bins() -> None:
    ordered = np.array([0.1] * 7 + [0.2] + [0.9] * 2)
    np.testing.assert_array_equal(equal_mass_edges(ordered, 5), [0.1, 0.2])
    assert len(equal_mass_edges(np.full(9, 0.3), 5)) == 0


def test_scaling_binning_averages_platt_scaling(drawn) -> None:
    p, labels = drawn
    logits = two_columns(p)
    scaled = calibrators.fit("platt_logits", logits, labels)(logits)[:, 1].numpy()
    expected = np.empty(700)
    for part in np.split(np.argsort(scaled), [700 * m // 15 for m in range(1, 15)]):
        expected[part] = scaled[part].mean()
    found = calibrators.fit("scaling_binning", logits, labels)(logits)[:, 1]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def bbq_by_hand(p: list[float], y: list[int], at: list[float]) -> list[float]:
    """Eq. 1–6 of Naeini et al. (2015) in plain loops, for distinct p."""
    order = sorted(range(len(p)), key=lambda i: p[i])
    root = len(p) ** (1 / 3)
    evidence, predictions = [], []
    for bins in range(max(1, int(root / 10)), math.ceil(10 * root) + 1):
        cuts = sorted({len(p) * m // bins for m in range(1, bins)} - {0, len(p)})
        edges = [0.0, *(p[order[cut - 1]] for cut in cuts), 1.0]
        total, values = 0.0, []
        for start, stop, low, high in zip(
            [0, *cuts], [*cuts, len(p)], edges, edges[1:], strict=False
        ):
            n, m = stop - start, sum(y[order[i]] for i in range(start, stop))
            alpha = 2 / (len(cuts) + 1) * (low + high) / 2
            beta = 2 / (len(cuts) + 1) - alpha
            lg = math.lgamma
            total += lg(alpha + beta) - lg(n + alpha + beta)
            total += lg(m + alpha) - lg(alpha) + lg(n - m + beta) - lg(beta)
            values.append((m + alpha) / (n + alpha + beta))
        evidence.append(total)
        predictions.append([values[sum(x > e for e in edges[1:-1])] for x in at])
    weights = np.exp(np.array(evidence) - max(evidence))
    return list(weights @ np.array(predictions) / weights.sum())


@pytest.mark.parametrize("samples", [1, 2, 40])
def test_bbq_is_that_of_the_paper_in_plain_loops(samples: int) -> None:
    random = np.random.default_rng(1)
    p = random.uniform(0.05, 0.95, size=samples)
    y = (random.uniform(size=samples) < p).astype(int)
    at = random.uniform(0.01, 0.99, size=25)
    fitted = calibrators.fit("bbq", two_columns(p), torch.from_numpy(y))
    found = fitted(two_columns(at))[:, 1]
    np.testing.assert_allclose(found, bbq_by_hand(p.tolist(), y.tolist(), at.tolist()), atol=1e-7)


def test_bbq_finds_a_planted_step() -> None:
    random = np.random.default_rng(2)
    p = expit(random.normal(size=3000))
    y = torch.from_numpy((random.uniform(size=3000) < np.where(p < 0.5, 0.2, 0.9)).astype(int))
    found = calibrators.fit("bbq", two_columns(p), y)(two_columns(np.array([0.3, 0.7])))[:, 1]
    np.testing.assert_allclose(found, [0.2, 0.9], atol=0.03)


def test_a_row_of_zeros_keeps_its_softmax() -> None:
    # The class at 0.6 is always right and those in the bins of 0.3 and 0.38 never.
    first = [[0.6, 0.38, 0.02], [0.6, 0.3, 0.1]]
    rows = torch.tensor([row[-k:] + row[:-k] for row in first for k in range(3)]).double()
    fitted = calibrators.fit("histogram_width", rows.log(), torch.tensor([0, 1, 2] * 2))
    even = torch.tensor([[0.38, 0.34, 0.28]]).double()
    assert [curve(p) for curve in fitted.maps for p in even[0].numpy()] == [0] * 9
    torch.testing.assert_close(fitted(even.log()), even)
    expected = torch.eye(3).double().repeat(2, 1)
    torch.testing.assert_close(fitted(rows.log()), expected, rtol=0, atol=1e-12)
