"""Properties that hold for all predictions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from calibration import metrics

levels = st.one_of(
    st.floats(0, 1, width=32), st.sampled_from([0.0, 1.0, 0.5, 1 / 3, 0.2, 0.6, 1 / 15])
)
sizes = st.integers(1, 40)


@st.composite
def pairs(draw) -> tuple[np.ndarray, np.ndarray]:
    n = draw(sizes)
    confidence = draw(arrays.arrays(np.float64, n, elements=levels))
    return confidence, draw(arrays.arrays(np.bool_, n))


@st.composite
def rows(draw) -> tuple[np.ndarray, np.ndarray]:
    n, classes = draw(sizes), draw(st.integers(2, 6))
    weights = draw(arrays.arrays(np.float64, (n, classes), elements=levels)) + 1e-6
    labels = draw(arrays.arrays(np.int64, n, elements=st.integers(0, classes - 1)))
    return weights / weights.sum(1, keepdims=True), labels


@given(pairs(), st.integers(1, 30))
@settings(max_examples=60, deadline=None)
def test_bounds_and_orderings(pair, bins: int) -> None:
    ece, mce, ace, average = (
        metric(*pair, bins=bins).item()
        for metric in (metrics.ece, metrics.mce, metrics.ace, metrics.average_ce)
    )
    ks, kuiper, smooth, mmce = (
        metric(*pair).item()
        for metric in (metrics.ks, metrics.kuiper, metrics.smooth_ece, metrics.mmce)
    )
    slack = 1e-12
    for value in (ece, mce, ace, average, ks, smooth, mmce):
        assert 0 <= value <= 1 + slack
    assert ece <= mce + slack
    assert average <= mce + slack
    assert ks <= kuiper + slack
    assert kuiper <= 2 * ks + slack
    # Any binning's error is at least the mean gap; so is the largest cumulative one.
    mean_gap = abs((pair[0] - pair[1]).mean())
    assert min(ece, ace, ks) >= mean_gap - slack
    assert mmce <= metrics.brier_decomposition(*pair).brier.item() ** 0.5 + slack


@given(pairs(), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_order_of_samples_never_matters(pair, random) -> None:
    order = list(range(len(pair[0])))
    random.shuffle(order)
    shuffled = pair[0][order], pair[1][order]
    assert metrics.panel(*shuffled) == pytest.approx(metrics.panel(*pair), abs=1e-12)
    # Sorting makes the rank metrics the same to the last bit.
    for metric in (metrics.ece, metrics.mce, metrics.ace, metrics.ks, metrics.kuiper, metrics.aurc):
        assert metric(*shuffled) == metric(*pair)


@given(rows(), st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_rows_and_their_top_label_agree(row, bins: int) -> None:
    probabilities, labels = row
    found = metrics.panel(probabilities, labels, bins=bins)
    top = probabilities.max(1), probabilities.argmax(1) == labels
    assert metrics.panel(*top, bins=bins) == {
        name: found[name] for name in found if metrics.METRICS[name].needs == "confidence"
    }
    assert 0 <= found["brier"] <= 2 + 1e-12
    assert found["nll"] >= 0
    assert 0 <= found["classwise_ece"] <= 2 / probabilities.shape[1] + 1e-12
    # NLL bounds the Brier score of the true class: (1 - p)² <= -log p.
    assert found["nll"] >= ((1 - probabilities[np.arange(len(labels)), labels]) ** 2).mean() - 1e-12


@given(rows(), st.integers(1, 20), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_order_of_classes_does_not_matter_class_wise(row, bins: int, random) -> None:
    probabilities, labels = row
    order = list(range(probabilities.shape[1]))
    random.shuffle(order)
    moved = probabilities[:, order], np.argsort(order)[labels]
    for metric in (metrics.classwise_ece, metrics.classwise_ace):
        expected = metric(probabilities, labels, bins=bins).item()
        assert metric(*moved, bins=bins).item() == pytest.approx(expected, abs=1e-12)


@given(pairs(), st.integers(2, 4))
@settings(max_examples=40, deadline=None)
def test_repeating_every_sample_changes_no_population_metric(pair, times: int) -> None:
    repeated = np.repeat(pair[0], times), np.repeat(pair[1], times)
    for metric in (metrics.ece, metrics.mce, metrics.average_ce, metrics.ks, metrics.kuiper,
                   metrics.smooth_ece, metrics.sece, metrics.mmce, metrics.error):  # fmt: skip
        assert metric(*repeated).item() == pytest.approx(metric(*pair).item(), abs=1e-9)


@given(pairs(), st.integers(1, 25))
@settings(max_examples=40, deadline=None)
def test_curves_account_for_every_sample(pair, bins: int) -> None:
    confidence, correct = pair
    for scheme in ("width", "mass"):
        curve = metrics.reliability_curve(confidence, correct, bins=bins, scheme=scheme)
        assert curve.count.sum() == len(confidence)
        full = curve.count > 0
        total = (curve.count * curve.confidence)[full].sum().item()
        assert total == pytest.approx(confidence.sum(), abs=1e-9)
        assert (curve.count * curve.accuracy)[full].sum().item() == pytest.approx(correct.sum())
        assert (curve.edges.diff() >= 0).all()
        if scheme == "mass":
            assert curve.count.max() - curve.count.min() <= 1
    risk = metrics.risk_coverage_curve(confidence, correct).risk
    assert risk[-1].item() == pytest.approx(1 - correct.mean())
    assert torch.logical_and(risk >= -1e-12, risk <= 1 + 1e-12).all()
