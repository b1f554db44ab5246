"""Every objective against loops over its printed formula or an independent library."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.stats import entropy as scipy_entropy
from torch import Tensor
from torch.nn import functional as F

from calibration import metrics
from calibration.objectives import (
    avuc,
    brier_reliability,
    confidence_bce,
    confidence_penalty,
    dca,
    dece,
    histogram_ece,
    mdca,
    mmce,
    mmce_weighted,
    sb_ece,
    sece,
    soft_accuracy,
    soft_ks,
    soft_memberships,
)

Draw = Callable[..., tuple[Tensor, Tensor]]
Rows = tuple[list[list[float]], list[float], list[bool], list[int]]


def rows_of(logits: Tensor, labels: Tensor) -> Rows:
    """Probabilities, confidence, correctness and labels as Python values."""
    p = [[math.exp(z - max(row)) for z in row] for row in logits.tolist()]
    p = [[e / sum(row) for e in row] for row in p]
    confidence = [max(row) for row in p]
    y = labels.tolist()
    correct = [row.index(c) == k for row, c, k in zip(p, confidence, y, strict=True)]
    return p, confidence, correct, y


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def normalised(weights: list[float]) -> list[float]:
    return [w / sum(weights) for w in weights]


def binned(u: list[list[float]], values: list[float]) -> list[tuple[float, float]]:
    """Per bin: share of the samples and mean of the values."""
    columns = list(zip(*u, strict=True))
    means = [sum(w * v for w, v in zip(c, values, strict=True)) / sum(c) for c in columns]
    return [(sum(c) / len(values), mean) for c, mean in zip(columns, means, strict=True)]


def soft_rank_accuracy(p: list[list[float]], y: list[int], t: float) -> list[float]:
    return [
        max(0.0, 2 - (0.5 + sum(sigmoid(t * (q - row[k])) for q in row)))
        for row, k in zip(p, y, strict=True)
    ]


@pytest.mark.parametrize("sharpness", [2.0, 30.0])
def test_confidence_bce_is_the_bce_of_boltzmann_confidence(sharpness: float, draw: Draw) -> None:
    logits, labels = draw(40, 3)
    p, _, correct, _ = rows_of(logits, labels)
    expected = [
        sum(q * math.exp(sharpness * q) for q in row) / sum(math.exp(sharpness * q) for q in row)
        for row in p
    ]

    def boltzmann(p: Tensor) -> Tensor:
        return ((sharpness * p).softmax(-1) * p).sum(-1)

    confidence = boltzmann(logits.softmax(-1))
    torch.testing.assert_close(confidence, torch.tensor(expected, dtype=torch.float64))

    # torch's BCE has no gradient in its target, so equal slopes show that ours has none either.
    def reference(z: Tensor) -> Tensor:
        target = torch.tensor(correct, dtype=torch.float64)
        return F.binary_cross_entropy(boltzmann(z.softmax(-1)), target)

    ours = torch.func.grad_and_value(lambda z: confidence_bce(z, labels, sharpness=sharpness))
    theirs = torch.func.grad_and_value(reference)
    torch.testing.assert_close(ours(logits), theirs(logits))


@pytest.mark.parametrize("gap", [12.0, 17.0, 20.0, 25.0])
def test_confident_errors_keep_their_gradient_in_single_precision(gap: float) -> None:
    logits = torch.tensor([[gap, 0.0, 0.5]])
    slope = torch.func.grad(confidence_bce)
    exact = slope(logits.double(), torch.tensor([1]))
    assert exact.abs().max() > 0.5
    torch.testing.assert_close(slope(logits, torch.tensor([1])).double(), exact, rtol=1e-3, atol=0)


@pytest.mark.parametrize("gap", [40.0, 80.0, 1e4])
def test_errors_beyond_doubt_have_a_bounded_loss(gap: float) -> None:
    # At this sharpness nothing but the clamp keeps float32's doubt from vanishing.
    logits = torch.tensor([[gap, 0.0]], requires_grad=True)
    value = confidence_bce(logits, torch.tensor([1]), sharpness=200.0)
    assert value.item() == pytest.approx(15 * math.log(10), rel=1e-5)
    (slope,) = torch.autograd.grad(value, logits, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), logits)
    assert slope.isfinite().all()
    assert bend.isfinite().all()


@pytest.mark.parametrize("temperature", [5.0, 100.0])
def test_soft_accuracy_is_the_rank_of_the_true_class(temperature: float, draw: Draw) -> None:
    logits, labels = draw(30, 6)
    p, _, _, y = rows_of(logits, labels)
    ours = soft_accuracy(logits.softmax(-1), labels, temperature)
    expected = soft_rank_accuracy(p, y, temperature)
    torch.testing.assert_close(ours, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize(("bins", "t_b"), [(15, 0.01), (4, 0.3)])
def test_dece_is_its_printed_formula(bins: int, t_b: float, draw: Draw) -> None:
    logits, labels = draw(30, 5)
    p, confidence, _, y = rows_of(logits, labels)
    cuts = [m / bins for m in range(bins)]
    scores = [[c * m - sum(cuts[:m]) for m in range(1, bins + 1)] for c in confidence]
    u = [normalised([math.exp((s - max(row)) / t_b) for s in row]) for row in scores]
    accuracy = binned(u, soft_rank_accuracy(p, y, 40.0))
    means = binned(u, confidence)
    expected = sum(w * abs(a - c) for (w, a), (_, c) in zip(accuracy, means, strict=True))
    ours = dece(logits, labels, bins=bins, accuracy_temperature=40.0, bin_temperature=t_b)
    assert ours.item() == pytest.approx(expected, rel=1e-9)


def test_sece_is_nadaraya_watson_regression(draw: Draw) -> None:
    logits, labels = draw(40, 5)
    p, confidence, _, y = rows_of(logits, labels)
    accuracy = soft_rank_accuracy(p, y, 100.0)
    total = 0.0
    for z in confidence:
        kernel = [math.exp(-((z - other) ** 2) / (2 * 0.05**2)) for other in confidence]
        smoothed = sum(k * a for k, a in zip(kernel, accuracy, strict=True)) / sum(kernel)
        total += abs(smoothed - z)
    assert sece(logits, labels, bandwidth=0.05).item() == pytest.approx(total / 40, rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_mmce_is_the_metric(seed: int, draw: Draw) -> None:
    logits, labels = draw(100, 5, seed=seed)
    torch.testing.assert_close(mmce(logits, labels), metrics.mmce(logits.softmax(-1), labels))


def test_weighted_mmce_is_its_printed_formula(draw: Draw) -> None:
    logits, labels = draw(30, 5)
    _, confidence, correct, _ = rows_of(logits, labels)
    right = [r for r, c in zip(confidence, correct, strict=True) if c]
    wrong = [r for r, c in zip(confidence, correct, strict=True) if not c]

    def kernel(r: float, s: float) -> float:
        return math.exp(-abs(r - s) / 0.4)

    square = (
        sum(r * s * kernel(r, s) for r in wrong for s in wrong) / len(wrong) ** 2
        + sum((1 - r) * (1 - s) * kernel(r, s) for r in right for s in right) / len(right) ** 2
        - 2
        * sum((1 - r) * s * kernel(r, s) for r in right for s in wrong)
        / (len(right) * len(wrong))
    )
    assert mmce_weighted(logits, labels).item() == pytest.approx(math.sqrt(square), rel=1e-9)


@pytest.mark.parametrize("kept", [True, False])
def test_weighted_mmce_without_errors_or_successes_is_nothing(kept: bool, draw: Draw) -> None:
    logits, labels = draw(40, 3)
    rows = (logits.argmax(-1) == labels) == kept
    slope, value = torch.func.grad_and_value(mmce_weighted)(logits[rows], labels[rows])
    assert value == 0
    assert (slope == 0).all()
    assert mmce(logits[rows], labels[rows]) > 0.01


def test_batch_means(draw: Draw) -> None:
    logits, labels = draw(40, 5)
    p, confidence, correct, y = rows_of(logits, labels)
    gaps = [abs(np.mean([row[k] for row in p]) - y.count(k) / 40) for k in range(5)]
    assert mdca(logits, labels).item() == pytest.approx(np.mean(gaps))
    assert dca(logits, labels).item() == pytest.approx(abs(np.mean(confidence) - np.mean(correct)))


def test_soft_binned_ece_and_brier_reliability_are_their_printed_formula(draw: Draw) -> None:
    logits, labels = draw(40, 5)
    _, confidence, correct, _ = rows_of(logits, labels)
    centres = [(m + 0.5) / 8 for m in range(8)]
    u = [normalised([math.exp(-((c - a) ** 2) / 0.02) for a in centres]) for c in confidence]
    pairs = zip(binned(u, confidence), binned(u, [float(c) for c in correct]), strict=True)
    expected = sum(w * (c - a) ** 2 for (w, c), (_, a) in pairs)
    hyperparameters = {"bins": 8, "temperature": 0.02}
    assert brier_reliability(logits, labels, **hyperparameters).item() == pytest.approx(expected)
    assert sb_ece(logits, labels, **hyperparameters).item() == pytest.approx(math.sqrt(expected))


def test_avuc_is_its_printed_formula(draw: Draw) -> None:
    logits, labels = draw(40, 5, scale=1.0)
    p, _, correct, _ = rows_of(logits, labels)
    threshold, temperature = 0.6, 0.4
    n = {"AC": 0.0, "AU": 0.0, "IC": 0.0, "IU": 0.0}
    for row, right in zip(p, correct, strict=True):
        u = scipy_entropy(row)
        h = u / math.log(5)
        uncertain = sigmoid(
            math.log(h * (1 - threshold) / ((1 - h) * threshold)) / temperature,
        )
        n["AU" if right else "IU"] += uncertain * math.tanh(u)
        n["AC" if right else "IC"] += (1 - uncertain) * (1 - math.tanh(u))
    expected = math.log(1 + (n["AU"] + n["IC"]) / (n["AC"] + n["IU"]))
    ours = avuc(logits, labels, threshold=threshold, temperature=temperature)
    assert ours.item() == pytest.approx(expected, rel=1e-9)


def test_soft_ks_is_its_printed_formula(draw: Draw) -> None:
    logits, labels = draw(40, 5)
    _, confidence, correct, _ = rows_of(logits, labels)
    samples = list(zip(confidence, correct, strict=True))
    steps = [sum(c - r for c, r in samples if c <= z) / 40 for z in confidence]
    expected = math.log(np.mean([math.cosh(20 * g) for g in steps])) / 20
    assert soft_ks(logits, labels, sharpness=20.0).item() == pytest.approx(expected, rel=1e-9)


def test_soft_ks_of_tied_confidences_does_not_depend_on_the_order_of_rows() -> None:
    logits = torch.tensor([[60.0, 0.0]] * 6 + [[1.0, 0.0]] * 4)
    labels = torch.tensor([0, 1, 0, 1, 0, 0, 1, 0, 1, 0])
    value = soft_ks(logits, labels)
    for seed in range(5):
        rows = torch.randperm(10, generator=torch.Generator().manual_seed(seed))
        torch.testing.assert_close(soft_ks(logits[rows], labels[rows]), value)


@pytest.mark.parametrize("bins", [1, 4, 15])
def test_histogram_bins_interpolate_linearly(bins: int, draw: Draw) -> None:
    logits, labels = draw(60, 3, scale=3.0)
    _, confidence, correct, _ = rows_of(logits, labels)
    centres = [(m + 0.5) / bins for m in range(bins)]
    u = np.stack([np.interp(confidence, centres, unit) for unit in np.eye(bins)], axis=1)
    gap = np.array(confidence) - np.array(correct, dtype=float)
    expected = np.abs(gap @ u).sum() / 60
    assert histogram_ece(logits, labels, bins=bins).item() == pytest.approx(expected)


def test_soft_memberships_learn_their_centres_and_widths() -> None:
    generator = torch.Generator().manual_seed(0)
    confidence, centres, widths = (
        torch.rand(size, generator=generator, dtype=torch.float64).requires_grad_()
        for size in (12, 5, 5)
    )
    u = soft_memberships(confidence, centres, widths)
    expected = [
        [
            max(0.0, 1 - abs(c - a) / w)
            for a, w in zip(centres.tolist(), widths.tolist(), strict=True)
        ]
        for c in confidence.tolist()
    ]
    torch.testing.assert_close(u, torch.tensor(expected, dtype=torch.float64))
    assert torch.autograd.gradcheck(soft_memberships, (confidence, centres, widths))


def test_minimising_the_confidence_penalty_raises_entropy(draw: Draw) -> None:
    logits, labels = draw(40, 5)
    p, _, _, _ = rows_of(logits, labels)
    before = np.mean([scipy_entropy(row) for row in p])
    slope, value = torch.func.grad_and_value(confidence_penalty)(logits, labels)
    assert value.item() == pytest.approx(-before)
    p, _, _, _ = rows_of(logits - 5 * slope, labels)
    assert np.mean([scipy_entropy(row) for row in p]) > before + 0.01
