"""Brute force and closed forms for what no library offers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from calibration import metrics
from tests.calibration.precision import rounding


def pairs(n: int, seed: int, *, step: float | None = None) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    confidence = generator.beta(3, 1, n)
    if step is not None:
        confidence = np.round(confidence / step) * step
    return confidence, generator.uniform(size=n) < confidence**1.5


@pytest.mark.parametrize("step", [None, 0.05])
def test_ks_and_kuiper_are_extremes_over_thresholds(step: float | None) -> None:
    confidence, correct = pairs(300, 0, step=step)
    gaps = [0.0] + [
        (confidence - correct)[confidence <= level].sum() / 300 for level in np.unique(confidence)
    ]
    assert metrics.ks(confidence, correct).item() == pytest.approx(max(map(abs, gaps)), abs=1e-13)
    spread = max(gaps) - min(gaps)
    assert metrics.kuiper(confidence, correct).item() == pytest.approx(spread, abs=1e-13)


def test_ks_of_one_sided_error_is_the_mean_gap() -> None:
    correct = torch.arange(100) < 70
    assert metrics.ks(torch.full((100,), 0.9), correct).item() == pytest.approx(0.2, abs=1e-6)


@pytest.mark.parametrize("step", [None, 0.1])
def test_mmce_is_the_mean_over_all_pairs(step: float | None) -> None:
    confidence, correct = pairs(200, 1, step=step)
    gap = correct - confidence
    kernel = np.exp(-np.abs(confidence[:, None] - confidence) / 0.4)
    expected = np.sqrt((gap[:, None] * gap * kernel).mean())
    assert metrics.mmce(confidence, correct).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("bandwidth", [0.01, 0.1])
def test_sece_is_the_nadaraya_watson_average(bandwidth: float) -> None:
    confidence, correct = pairs(700, 2)
    kernel = np.exp(-((confidence[:, None] - confidence) ** 2) / (2 * bandwidth**2))
    expected = np.abs(kernel @ correct / kernel.sum(1) - confidence).mean()
    found = metrics.sece(confidence, correct, bandwidth=bandwidth)
    assert found.item() == pytest.approx(expected, rel=1e-12)


def test_sece_in_blocks_is_sece(monkeypatch) -> None:
    confidence, correct = pairs(500, 3)
    whole = metrics.sece(confidence, correct).item()
    monkeypatch.setattr("calibration.metrics.smooth.KERNEL_ELEMENTS", 1300)
    assert metrics.sece(confidence, correct).item() == pytest.approx(whole, rel=1e-12)


def debiased(confidence: np.ndarray, correct: np.ndarray, groups: list[np.ndarray]) -> float:
    total = 0.0
    for group in groups:
        if len(group) > 1:
            accuracy = correct[group].mean()
            gap = confidence[group].mean() - accuracy
            variance = accuracy * (1 - accuracy) / (len(group) - 1)
            total += len(group) / len(confidence) * (gap**2 - variance)
    return total


def test_l2_debiased_is_plug_in_minus_variance() -> None:
    confidence, correct = pairs(200, 4)
    number = np.ceil(confidence * 15).astype(int)
    groups = [np.flatnonzero(number == m) for m in range(1, 16)]
    assert min(map(len, groups)) <= 1  # the rule for lonely samples is exercised
    expected = debiased(confidence, correct, groups)
    assert metrics.l2_debiased(confidence, correct).item() == pytest.approx(expected, abs=1e-13)
    groups = np.array_split(confidence.argsort(), 15)
    found = metrics.l2_debiased(confidence, correct, scheme="mass")
    assert found.item() == pytest.approx(debiased(confidence, correct, groups), abs=1e-13)


def test_l2_debiased_of_a_calibrated_model_is_zero_on_average() -> None:
    generator = torch.Generator().manual_seed(0)
    confidence = torch.rand(2000, 300, generator=generator, dtype=torch.float64)
    correct = torch.rand(2000, 300, generator=generator) < confidence
    values = metrics.l2_debiased(confidence, correct)
    assert (values < 0).any()
    # Binned confidences are not constant, so a small part of the variance is not seen.
    plug_in = (metrics.ece(confidence, correct) ** 2).mean()
    assert abs(values.mean()) < 0.1 * plug_in


def test_class_wise_errors_by_brute_force(draw) -> None:
    probabilities, labels = (x.numpy() for x in draw(400, 4))
    width = mass = 0.0
    for k in range(4):
        p, hit = probabilities[:, k], labels == k
        number = np.ceil(p * 15)
        width += sum(abs((p - hit)[number == m].sum()) for m in range(1, 16)) / 400 / 4
        groups = np.array_split(p.argsort(), 15)
        mass += sum(abs((p - hit)[group].sum()) for group in groups) / 400 / 4
    assert metrics.classwise_ece(probabilities, labels).item() == pytest.approx(width, abs=1e-13)
    assert metrics.classwise_ace(probabilities, labels).item() == pytest.approx(mass, abs=1e-13)


def test_class_wise_ece_in_blocks_is_class_wise_ece(draw, monkeypatch) -> None:
    probabilities, labels = draw(1000, 7)
    whole = (
        metrics.classwise_ece(probabilities, labels).item(),
        metrics.brier(probabilities, labels).item(),
    )
    monkeypatch.setattr("calibration.metrics.chunks.ELEMENTS", 500)
    monkeypatch.setattr("calibration.metrics.classwise.SEARCHED_ELEMENTS", 500)
    assert metrics.classwise_ece(probabilities, labels).item() == pytest.approx(whole[0], abs=1e-14)
    assert metrics.brier(probabilities, labels).item() == pytest.approx(whole[1], abs=1e-14)


def test_aurc_by_brute_force() -> None:
    confidence, correct = pairs(150, 5)
    wrong = ~correct[confidence.argsort()[::-1]]
    risks = wrong.cumsum() / np.arange(1, 151)
    curve = metrics.risk_coverage_curve(confidence, correct)
    assert curve.risk.numpy() == pytest.approx(risks, abs=1e-13)
    assert curve.coverage.numpy() == pytest.approx(np.arange(1, 151) / 150)
    assert metrics.aurc(confidence, correct).item() == pytest.approx(risks.mean(), abs=1e-13)


def test_tied_confidences_give_the_expected_risk_of_a_random_order() -> None:
    confidence = np.repeat([0.9, 0.6], [4, 6])
    correct = np.array([1, 1, 1, 0, 1, 0, 0, 1, 0, 0])
    expected = [0.25] * 4 + [(1 + r * 4 / 6) / (4 + r) for r in range(1, 7)]
    curve = metrics.risk_coverage_curve(confidence, correct)
    assert curve.risk.tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("coverage", "kept"), [(0.07, 7), (0.071, 8), (0.5, 50), (1.0, 100), (1e-9, 1)]
)
def test_accuracy_at_coverage_keeps_the_most_confident(coverage: float, kept: int) -> None:
    confidence, correct = pairs(100, 6)
    expected = correct[confidence.argsort()[::-1][:kept]].mean()
    found = metrics.accuracy_at_coverage(confidence, correct, coverage)
    assert found.item() == pytest.approx(expected)


@pytest.mark.parametrize("rows", [True, False])
def test_brier_decomposition_remainder_is_within_bin_variance_and_covariance(draw, rows) -> None:
    probabilities, labels = (x.numpy() for x in draw(500, 3))
    if rows:
        parts = metrics.brier_decomposition(probabilities, labels)
        columns = [(probabilities[:, k], labels == k) for k in range(3)]
        assert parts.brier == metrics.brier(probabilities, labels)
    else:
        confidence, correct = probabilities.max(1), probabilities.argmax(1) == labels
        parts = metrics.brier_decomposition(confidence, correct)
        columns = [(confidence, correct)]
        assert parts.brier.item() == pytest.approx(((confidence - correct) ** 2).mean())
    expected = {"reliability": 0.0, "resolution": 0.0, "uncertainty": 0.0, "remainder": 0.0}
    for p, hit in columns:
        base = hit.mean()
        expected["uncertainty"] += base * (1 - base)
        number = np.ceil(p * 15)
        for m in np.unique(number):
            inside = number == m
            share, q, o = inside.mean(), p[inside], hit[inside]
            expected["reliability"] += share * (q.mean() - o.mean()) ** 2
            expected["resolution"] += share * (o.mean() - base) ** 2
            spread = q - q.mean()
            expected["remainder"] += share * (spread**2 - 2 * spread * (o - o.mean())).mean()
    for name, value in expected.items():
        assert getattr(parts, name).item() == pytest.approx(value, abs=1e-12), name


def test_brier_decomposition_has_no_remainder_with_binned_probabilities() -> None:
    confidence = np.random.default_rng(0).choice([0.1, 0.3, 0.8], 300)
    correct = np.random.default_rng(1).uniform(size=300) < 0.5
    parts = metrics.brier_decomposition(confidence, correct)
    assert parts.remainder.item() == pytest.approx(0, abs=1e-14)
    assert parts.resolution > 0


def test_batches_are_evaluated_one_by_one(draw) -> None:
    sets = [draw(200, 3, seed=seed) for seed in range(6)]
    probabilities = torch.stack([p for p, _ in sets]).view(2, 3, 200, 3)
    labels = torch.stack([y for _, y in sets]).view(2, 3, 200)
    top = [
        metrics.ece, metrics.mce, metrics.ace, metrics.average_ce, metrics.ks, metrics.kuiper,
        metrics.smooth_ece, metrics.kde_ece, metrics.sece, metrics.mmce, metrics.l2_debiased,
        metrics.aurc, metrics.error,
    ]  # fmt: skip
    rows = [metrics.nll, metrics.brier, metrics.classwise_ece, metrics.classwise_ace]
    for metric in top + rows:
        whole = metric(probabilities, labels)
        single = torch.stack([metric(p, y) for p, y in sets]).view(2, 3)
        assert whole.dtype == torch.float64
        # MMCE is the root of a mean of 200² terms that mostly cancel. A root v of something
        # that is off by δ is off by δ/2v, and the least MMCE of the six is 0.018.
        tolerance = rounding(200**2, torch.float64) / (2 * 0.018)
        assert torch.allclose(whole, single, rtol=0, atol=tolerance), metric.__name__
    confidence, predicted = probabilities.max(-1)
    for metric in top:
        found = metric(confidence, predicted == labels)
        assert torch.equal(found, metric(probabilities, labels)), metric.__name__


def test_gradients_never_flow(draw) -> None:
    probabilities, labels = draw(50)
    probabilities.requires_grad_()
    assert not metrics.ece(probabilities, labels).requires_grad
    assert not metrics.nll(probabilities, labels).requires_grad
    assert not metrics.reliability_curve(probabilities, labels).accuracy.requires_grad


def test_float32_rows_are_summed_in_float64(draw) -> None:
    probabilities, labels = draw(3000, 10, dtype=torch.float32)
    for metric in (metrics.ece, metrics.nll, metrics.brier, metrics.classwise_ece, metrics.ks):
        narrow, wide = metric(probabilities, labels), metric(probabilities.double(), labels)
        assert narrow.item() == pytest.approx(wide.item(), rel=1e-13), metric.__name__


def test_refining_bins_of_a_fine_curve_adds_up(draw) -> None:
    """ECE with twice the bins is never smaller: the triangle inequality."""
    probabilities, labels = draw()
    values = [metrics.ece(probabilities, labels, bins=15 * 2**i).item() for i in range(5)]
    assert all(a <= b + 1e-15 for a, b in pairwise(values))
