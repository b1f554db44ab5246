from __future__ import annotations

from fractions import Fraction
from math import ceil, nextafter

import numpy as np
import pytest
import torch

from calibration import metrics
from calibration.metrics.binning import width_index


def exact_bin(value: float, bins: int) -> int:
    """Bin ((m-1)/M, m/M] of the number that the float stores, by rational arithmetic."""
    return max(0, ceil(Fraction(value) * bins) - 1)


def edge_cases(bins: int, dtype: type[np.floating]) -> list[float]:
    edges = [m / bins for m in range(bins + 1)]
    around = [f(e) for e in edges for f in (lambda e: nextafter(e, 0), lambda e: nextafter(e, 1))]
    return sorted({float(dtype(value)) for value in edges + around if 0 <= value <= 1})


@pytest.mark.parametrize("bins", [1, 2, 3, 7, 10, 15, 20, 49, 100, 1000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_edges_fall_where_exact_arithmetic_says(bins: int, dtype: type[np.floating]) -> None:
    values = edge_cases(bins, dtype)
    expected = [exact_bin(value, bins) for value in values]
    stored = torch.as_tensor(np.array(values, dtype=dtype))
    assert width_index(stored, bins).tolist() == expected
    curve = metrics.reliability_curve(stored, torch.ones(len(values)), bins=bins)
    assert curve.count.tolist() == np.bincount(expected, minlength=bins).tolist()


@pytest.mark.parametrize(
    ("value", "bins", "bin_number"),
    # The float64 0.2 lies just above 3/15 and 0.1 above 1/10, 0.6 just below 6/10.
    [(0.0, 15, 0), (1.0, 15, 14), (0.2, 15, 3), (0.1, 10, 1), (0.6, 10, 5), (0.5, 2, 0)],
)
def test_known_edges(value: float, bins: int, bin_number: int) -> None:
    curve = metrics.reliability_curve([value], [True], bins=bins)
    assert curve.count.argmax() == bin_number


def test_class_wise_bins_are_the_same_bins() -> None:
    # float32(1/15) lies above 1/15: the second bin. Its error there is 1 - p, in the first it
    # would be averaged with the zeros.
    p = np.float32(1 / 15)
    assert exact_bin(float(p), 15) == 1
    rows = np.array([[p, 1 - p], [0, 1], [0, 1]], dtype=np.float32)
    expected = (abs(1 - float(p)) / 3 + abs(float(rows[0, 1]) + 2 - 2) / 3) / 2
    assert metrics.classwise_ece(rows, [0, 1, 1]).item() == pytest.approx(expected, abs=1e-12)


def test_equal_mass_splits_by_rank_like_tensor_split() -> None:
    confidence = torch.linspace(0.1, 0.9, 23, dtype=torch.float64)
    correct = torch.arange(23) % 3 == 0
    curve = metrics.reliability_curve(confidence, correct, bins=5, scheme="mass")
    parts = [p.double() for p in correct.tensor_split(5)]
    assert curve.count.tolist() == [5, 5, 5, 4, 4]
    assert torch.allclose(curve.accuracy, torch.stack([p.mean() for p in parts]))
    means = torch.stack([p.mean() for p in confidence.tensor_split(5)])
    assert torch.allclose(curve.confidence, means)
    assert curve.edges[0] == confidence[0]
    assert curve.edges[-1] == confidence[-1]
    assert curve.edges[1].item() == pytest.approx((confidence[4] + confidence[5]).item() / 2)


def test_tied_confidences_share_their_mean_correctness() -> None:
    # Six samples tied at 0.8, four correct, across the boundary of two bins of five.
    confidence = [0.5, 0.6, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.9, 0.95]
    correct = [1, 0, 1, 1, 1, 1, 0, 0, 1, 1]
    curve = metrics.reliability_curve(confidence, correct, bins=2, scheme="mass")
    assert curve.accuracy.tolist() == pytest.approx([(1 + 3 * 4 / 6) / 5, (3 * 4 / 6 + 2) / 5])


def test_empty_bins_are_marked_and_ignored() -> None:
    curve = metrics.reliability_curve([0.05, 0.95], [False, True], bins=10)
    assert curve.count.tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    assert curve.confidence[1:9].isnan().all()
    assert curve.accuracy[1:9].isnan().all()
    assert curve.edges.tolist() == pytest.approx([m / 10 for m in range(11)])
    assert metrics.average_ce([0.05, 0.95], [False, True], bins=10).item() == pytest.approx(0.05)


def test_more_bins_than_samples() -> None:
    curve = metrics.reliability_curve([0.3, 0.7], [True, False], bins=5, scheme="mass")
    assert curve.count.tolist() == [1, 1, 0, 0, 0]
    assert metrics.ace([0.3, 0.7], [True, False], bins=5).item() == pytest.approx(0.7)


def test_lonely_sample_decides_mce_and_is_counted() -> None:
    confidence = torch.cat([torch.full((999,), 0.95), torch.tensor([0.35])])
    correct = torch.cat([torch.arange(999) % 20 != 0, torch.tensor([True])])
    found = metrics.mce_with_count(confidence, correct)
    assert found.value.item() == pytest.approx(0.65, abs=1e-6)
    assert found.count.item() == 1


def test_mce_counts_a_populated_bin_even_without_any_gap() -> None:
    found = metrics.mce_with_count([1.0, 1.0, 1.0], [True, True, True])
    assert (found.value.item(), found.count.item()) == (0.0, 3)


def test_robustness_is_ece_and_mce_at_each_number_of_bins(draw) -> None:
    probabilities, labels = draw()
    found = metrics.bin_robustness(probabilities, labels)
    assert found.bins == (10, 20, 50, 100, 200, 500, 1000)
    for number, ece, mce in zip(found.bins, found.ece, found.mce, strict=True):
        assert ece == metrics.ece(probabilities, labels, bins=number)
        assert mce == metrics.mce(probabilities, labels, bins=number)


def test_unknown_scheme_is_refused() -> None:
    with pytest.raises(ValueError, match="scheme must be 'width' or 'mass', found 'equal'"):
        metrics.reliability_curve([0.5], [True], scheme="equal")
    with pytest.raises(ValueError, match="scheme"):
        metrics.l2_debiased([0.5], [True], scheme="equal")
