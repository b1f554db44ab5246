"""What the objectives become as their hyperparameters grow sharp or broad."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.interpolate import CubicSpline
from torch import Tensor
from torch.nn import functional as F
from torchmetrics.functional.classification import multiclass_calibration_error

from calibration import metrics
from calibration.objectives import (
    OBJECTIVES,
    brier_reliability,
    confidence_bce,
    dca,
    dece,
    histogram_ece,
    mdca,
    sb_ece,
    sece,
    soft_accuracy,
    soft_ks,
    spline_ks,
)
from calibration.objectives.spline_ks import projection
from tests.calibration.precision import rounding

Draw = Callable[..., tuple[Tensor, Tensor]]


def top(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    confidence, predicted = logits.softmax(-1).max(-1)
    return confidence, predicted == labels


def test_the_confidence_of_confidence_bce_lies_between_uniform_and_maximum(draw: Draw) -> None:
    logits, labels = draw()
    confidence, correct = top(logits, labels)
    flat = torch.full_like(confidence, 1 / logits.shape[-1])
    for sharpness, limit in ((1e-9, flat), (1e7, confidence)):
        found = confidence_bce(logits, labels, sharpness=sharpness)
        torch.testing.assert_close(found, F.binary_cross_entropy(limit, correct.double()))
    # A low sharpness caps even a certain prediction.
    certain = confidence_bce(torch.tensor([[100.0, 0.0]]), torch.tensor([0]), sharpness=2.0)
    assert certain.neg().exp().item() == pytest.approx(0.8808, abs=1e-4)


def test_soft_accuracy_becomes_right_or_wrong(draw: Draw) -> None:
    logits, labels = draw(200, 5)
    sharp = soft_accuracy(logits.softmax(-1), labels, 1e7)
    torch.testing.assert_close(sharp, top(logits, labels)[1].double())


@pytest.mark.parametrize("bins", [10, 15])
@pytest.mark.parametrize("classes", [2, 10])
def test_dece_becomes_ece(bins: int, classes: int, draw: Draw) -> None:
    logits, labels = draw(500, classes)
    probabilities = logits.softmax(-1)
    ece = metrics.ece(probabilities, labels, bins=bins)
    theirs = multiclass_calibration_error(
        probabilities, labels, num_classes=classes, n_bins=bins, norm="l1"
    )
    # Theirs adds up in float32.
    torch.testing.assert_close(theirs.double(), ece, rtol=0, atol=rounding(500))
    errors = [
        (dece(logits, labels, bins=bins, accuracy_temperature=1 / t, bin_temperature=t) - ece).abs()
        for t in (1e-1, 1e-2, 1e-3, 1e-7)
    ]
    assert errors[-1] < 1e-4
    assert errors[-1] < errors[-2] < 0.01
    assert errors[-2] < errors[0]


@pytest.mark.parametrize(("classes", "scales"), [(10, (0.5, 4.0)), (2, (0.5, 4.0)), (10, (2, 2))])
def test_dece_goes_with_ece_over_batches(
    classes: int, scales: tuple[float, float], draw: Draw
) -> None:
    soft, hard = [], []
    for seed, scale in enumerate(np.linspace(*scales, 100)):
        logits, labels = draw(128, classes, seed=seed, scale=scale)
        soft.append(dece(logits, labels).item())
        hard.append(metrics.ece(logits.softmax(-1), labels).item())
    assert np.corrcoef(soft, hard)[0, 1] >= 0.9


def test_sece_with_sharp_accuracy_is_the_metric(draw: Draw) -> None:
    logits, labels = draw(300, 5)
    for bandwidth in (0.01, 0.1):
        ours = sece(logits, labels, bandwidth=bandwidth, accuracy_temperature=1e7)
        theirs = metrics.sece(logits.softmax(-1), labels, bandwidth=bandwidth)
        torch.testing.assert_close(ours, theirs)


def test_sece_from_narrow_to_broad(draw: Draw) -> None:
    logits, labels = draw(300, 5)
    confidence, correct = top(logits, labels)
    alone = (confidence - correct.double()).abs().mean()
    torch.testing.assert_close(
        sece(logits, labels, bandwidth=1e-9, accuracy_temperature=1e7), alone
    )
    pooled = (confidence - correct.double().mean()).abs().mean()
    torch.testing.assert_close(
        sece(logits, labels, bandwidth=1e4, accuracy_temperature=1e7), pooled
    )
    # Of a network that is equally sure of everything, that is the gap of the means.
    level = 2.0 * (torch.arange(5) == logits.argmax(-1, keepdim=True)).double()
    gap = (level.softmax(-1).amax() - correct.double().mean()).abs()
    ours = sece(level, labels, bandwidth=1e4, accuracy_temperature=1e7)
    torch.testing.assert_close(ours, gap)


@pytest.mark.parametrize("bins", [10, 15])
def test_soft_binned_ece_becomes_the_l2_binned_error(bins: int, draw: Draw) -> None:
    logits, labels = draw(500, 5)
    theirs = multiclass_calibration_error(
        logits.softmax(-1), labels, num_classes=5, n_bins=bins, norm="l2"
    )
    ours = sb_ece(logits, labels, bins=bins, temperature=1e-8)
    # Theirs adds up in float32; a norm is off by no more than what it is taken of.
    torch.testing.assert_close(ours, theirs.double(), rtol=0, atol=rounding(500))


def test_boundless_bins_compare_the_means(draw: Draw) -> None:
    logits, labels = draw(100, 5)
    expected = dca(logits, labels)
    torch.testing.assert_close(sb_ece(logits, labels, temperature=1e9), expected)
    soft = dece(logits, labels, accuracy_temperature=1e7, bin_temperature=1e9)
    torch.testing.assert_close(soft, expected)
    torch.testing.assert_close(histogram_ece(logits, labels, bins=1), expected)


def test_brier_reliability_becomes_that_of_hard_bins(draw: Draw) -> None:
    logits, labels = draw(500, 5)
    hard = metrics.brier_decomposition(*top(logits, labels), bins=15).reliability
    ours = brier_reliability(logits, labels, temperature=1e-8)
    torch.testing.assert_close(ours, hard)


def test_soft_ks_approaches_ks_from_below(draw: Draw) -> None:
    logits, labels = draw(500, 5)
    ks = metrics.ks(logits.softmax(-1), labels)
    errors = [ks - soft_ks(logits, labels, sharpness=s) for s in (1.0, 1e2, 1e4, 1e7)]
    for sharpness, error in zip((1.0, 1e2, 1e4, 1e7), errors, strict=True):
        assert 0 < error <= np.log(1000) / sharpness + 1e-12
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-6


def test_spline_ks_of_a_constant_gap_is_the_gap() -> None:
    """G is straight, so that it is its own spline; its largest value, the gap, is at the end."""
    logits = torch.tensor([0.8, 0.2], dtype=torch.float64).log().repeat(40, 1)
    wrong = torch.ones(40, dtype=torch.long)
    for knots in (3, 6):
        found = spline_ks(logits, wrong, knots=knots, sharpness=1e7)
        # The smooth maximum over at most 2·81 numbers is log(162)/1e7 low.
        assert found.item() == pytest.approx(0.8, abs=1e-6)


def test_spline_ks_approaches_ks_with_its_knots(draw: Draw) -> None:
    """A spline with a knot for every second sample follows the cumulative gap."""
    logits, labels = draw(200, 5)
    ks = metrics.ks(logits.softmax(-1), labels).item()
    errors = [abs(spline_ks(logits, labels, knots=k, sharpness=1e7).item() - ks) for k in (4, 100)]
    # Between two knots the gap moves by two samples' worth at most.
    assert errors[1] <= 2 / 200
    assert errors[1] < errors[0]


def test_spline_is_the_nearest_in_the_mean_square(draw: Draw) -> None:
    """An independent least-squares fit to a fine sampling of the same piecewise straight curve."""
    logits, labels = draw(30, 3)
    confidence, correct = top(logits, labels)
    gap = (confidence - correct.double())[confidence.argsort()]
    cumulative = np.concatenate([[0], gap.cumsum(0).numpy()]) / 30
    fine = (np.arange(60_000) + 0.5) / 60_000
    basis = CubicSpline(np.linspace(0, 1, 6), np.eye(6), bc_type="natural")
    target = np.interp(fine, np.arange(31) / 30, cumulative)
    weights = np.linalg.lstsq(basis(fine), target, rcond=None)[0]
    curve = gap @ projection(30, 6)
    expected = basis(np.linspace(0, 1, len(curve))) @ weights
    np.testing.assert_allclose(curve.numpy(), expected, atol=1e-7)


def test_too_few_knots_are_refused(draw: Draw) -> None:
    with pytest.raises(ValueError, match="knots must be a whole number of at least 3, found 2"):
        spline_ks(*draw(), knots=2)


def test_histogram_ece_of_confidences_at_the_centres_is_ece() -> None:
    generator = torch.Generator().manual_seed(0)
    confidence = (torch.randint(8, 15, (200,), generator=generator).double() + 0.5) / 15
    logits = torch.stack([confidence.log(), (1 - confidence).log()], dim=-1)
    labels = torch.randint(2, (200,), generator=generator)
    ece = metrics.ece(confidence, labels == 0)
    torch.testing.assert_close(histogram_ece(logits, labels), ece)


@pytest.mark.parametrize(
    "name", ["dca", "dece", "histogram_ece", "mmce", "sb_ece", "soft_ks", "spline_ks"]
)
def test_a_calibrated_batch_is_better_than_a_too_sure_one(name: str, draw: Draw) -> None:
    logits, _ = draw(2000, 5, scale=1.0)
    generator = torch.Generator().manual_seed(1)
    labels = torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(-1)
    objective = OBJECTIVES[name]
    assert objective(logits, labels) < 0.5 * objective(2 * logits, labels)


def test_base_rates_have_no_mdca() -> None:
    labels = torch.tensor([0, 0, 0, 1, 1, 2])
    logits = torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64).log().expand(6, 3)
    assert mdca(logits, labels).item() == pytest.approx(0, abs=rounding(6, torch.float64))
