"""Bad input: a ValueError that names the argument and what was found."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from calibration import metrics
from tests.calibration.precision import rounding

GOOD = torch.tensor([[0.7, 0.3], [0.2, 0.8]])
LABELS = torch.tensor([0, 1])
ROW_METRICS = [metrics.nll, metrics.brier, metrics.classwise_ece, metrics.classwise_ace]
TOP_METRICS = [
    metrics.ece, metrics.mce, metrics.mce_with_count, metrics.average_ce, metrics.ace,
    metrics.l2_debiased, metrics.ks, metrics.kuiper, metrics.smooth_ece, metrics.kde_ece,
    metrics.sece, metrics.mmce, metrics.aurc, metrics.risk_coverage_curve, metrics.error,
    metrics.bin_robustness, metrics.reliability_curve, metrics.brier_decomposition,
    metrics.panel, metrics.bootstrap_intervals,
]  # fmt: skip


@pytest.mark.parametrize("metric", ROW_METRICS + TOP_METRICS)
@pytest.mark.parametrize(
    ("rows", "labels", "message"),
    [
        (torch.zeros(0, 2), torch.zeros(0, dtype=torch.long), "probabilities is empty"),
        ([[0.7, float("nan")], [0.2, 0.8]], LABELS, "probabilities contains NaN"),
        ([[1.2, -0.2], [0.2, 0.8]], LABELS, "probabilities must not be negative, found -0.2"),
        ([[0.7, 0.2], [0.2, 0.8]], LABELS, "probabilities must sum to 1 .* from 0.9 to 1"),
        ([[0.7, float("inf")], [0.2, 0.8]], LABELS, "probabilities must sum to 1 .* to inf"),
        (GOOD, [0, 2], "labels must lie in 0…1 .*2 classes.*found values from 0 to 2"),
        (GOOD, [-1, 0], "labels must lie in 0…1 .*found values from -1 to 0"),
        (GOOD, [0.0, 1.0], "labels must be whole numbers, found torch.float64"),
        (GOOD, [0, 1, 1], r"probabilities must have shape.*found \(2, 2\) and \(3,\)"),
        ([[1.0], [1.0]], [0, 0], "at least 2 classes in the last dimension, found 1"),
        ([["a", "b"]], [0], "probabilities cannot be read as an array of numbers"),
        (GOOD * 1j, LABELS, "probabilities must be real numbers"),
    ],
)
def test_malformed_rows_are_refused(metric, rows, labels, message) -> None:
    with pytest.raises(ValueError, match=message):
        metric(rows, labels)


@pytest.mark.parametrize("metric", TOP_METRICS)
@pytest.mark.parametrize(
    ("confidence", "correct", "message"),
    [
        ([], [], "is empty"),
        ([0.5, float("nan")], [True, False], "confidence contains NaN"),
        (
            [0.5, 1.2],
            [True, False],
            r"confidence must lie in \[0, 1\], found values from 0.5 to 1.2",
        ),
        ([-0.1, 0.2], [True, False], r"confidence must lie in \[0, 1\], found values from -0.1"),
        ([0.5, 0.6], [2, 0], "correct must be boolean or 0/1, found 2"),
        ([0.5, 0.6], [0.5, 0], "correct must be boolean or 0/1, found 0.5"),
        ([0.5, 0.6], [True], r"equal shapes, found \(2,\) and \(1,\)"),
    ],
)
def test_malformed_pairs_are_refused(metric, confidence, correct, message) -> None:
    with pytest.raises(ValueError, match=message):
        metric(confidence, correct)


@pytest.mark.parametrize("metric", ROW_METRICS)
def test_row_metrics_refuse_confidences(metric) -> None:
    with pytest.raises(ValueError, match="probabilities must have shape"):
        metric([0.5, 0.6], [True, False])


@pytest.mark.parametrize("bins", [0, -3, 1.5, "ten", None])
def test_impossible_numbers_of_bins_are_refused(bins) -> None:
    for metric in (metrics.ece, metrics.ace, metrics.classwise_ece, metrics.reliability_curve):
        with pytest.raises(ValueError, match="bins must be"):
            metric(GOOD, LABELS, bins=bins)


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_impossible_bandwidths_and_coverages_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="bandwidth must be positive"):
        metrics.sece(GOOD, LABELS, bandwidth=value)
    with pytest.raises(ValueError, match="bandwidth must be positive"):
        metrics.true_ce(GOOD, GOOD, bandwidth=value)
    with pytest.raises(ValueError, match="coverage must be positive and at most 1"):
        metrics.accuracy_at_coverage(GOOD, LABELS, value)


@pytest.mark.parametrize("logits", [[[0.0, float("nan")]], [[0.0, float("inf")]]])
def test_logits_must_be_finite(logits) -> None:
    for metric in (metrics.nll_from_logits, metrics.nll_decomposition_from_logits):
        with pytest.raises(ValueError, match="logits must be finite"):
            metric(logits, [0])
        with pytest.raises(ValueError, match=r"logits must have shape \(..., N, K\) and labels"):
            metric([1.0, 2.0], [0, 1])


def test_posterior_is_checked_like_probabilities() -> None:
    with pytest.raises(ValueError, match="posterior must sum to 1"):
        metrics.true_ce(GOOD, GOOD * 0.5)
    with pytest.raises(ValueError, match=r"must both have shape.*found \(2, 2\) and \(2,\)"):
        metrics.posterior_gap(GOOD, GOOD[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_softmax_of_every_precision_is_accepted(draw, dtype: torch.dtype, classes: int) -> None:
    probabilities, labels = draw(300, classes, dtype=torch.float32)
    rounded = probabilities.to(dtype)
    exact = metrics.panel(rounded.double(), labels)
    assert metrics.panel(rounded, labels) == pytest.approx(exact, rel=1e-9, abs=1e-12)


def test_numpy_arrays_lists_and_tensors_give_the_same(draw) -> None:
    probabilities, labels = draw(100, 3)
    expected = metrics.ece(probabilities, labels)
    arrays = probabilities.numpy().copy(), labels.numpy().astype(np.uint8)
    arrays[0].flags.writeable = False  # as a memory-mapped file is
    assert metrics.ece(*arrays) == expected
    assert metrics.ece(probabilities.tolist(), labels.tolist()) == expected
    flipped = arrays[0][::-1], arrays[1][::-1]  # negative strides
    rounded = rounding(100, torch.float64)
    assert metrics.ece(*flipped).item() == pytest.approx(expected.item(), abs=rounded)
    transposed = probabilities.t().contiguous().t()
    assert metrics.ece(transposed, labels) == expected
    found = metrics.classwise_ece(transposed, labels).item()
    assert found == pytest.approx(metrics.classwise_ece(*arrays).item(), abs=rounded)


def test_inputs_are_never_written_to(draw) -> None:
    probabilities, labels = draw(500)
    confidence, correct = probabilities.max(-1).values, probabilities.argmax(-1) == labels
    originals = [x.clone() for x in (probabilities, labels, confidence, correct)]
    metrics.panel(probabilities, labels)
    metrics.panel(confidence, correct)
    metrics.bootstrap_intervals(confidence, correct, resamples=5)
    metrics.nll_decomposition(probabilities, labels)
    metrics.true_ce(probabilities, probabilities)
    metrics.brier_decomposition(confidence, correct)
    for now, before in zip((probabilities, labels, confidence, correct), originals, strict=True):
        assert torch.equal(now, before)


def test_negative_zero_is_zero() -> None:
    confidence = [-0.0, 0.0, 0.9]
    assert metrics.ks(confidence, [1, 0, 1]) == metrics.ks([0.0, 0.0, 0.9], [1, 0, 1])
    assert metrics.reliability_curve(confidence, [1, 0, 1], bins=2).count.tolist() == [2, 1]
