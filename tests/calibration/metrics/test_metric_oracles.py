"""Independent libraries on random and adversarial inputs."""

from __future__ import annotations

import netcal.metrics
import numpy as np
import pytest
import relplot
import sklearn.metrics
import torch
from torchmetrics.functional.classification import multiclass_calibration_error

from calibration import metrics
from tests.calibration.precision import rounding

SHAPES = [(2000, 2), (2000, 10), (300, 1000), (50, 3)]


def adversarial() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Pairs (confidence, correct) that break careless implementations."""
    generator = np.random.default_rng(0)
    uniform = generator.uniform(size=500)
    coarse = np.round(generator.beta(4, 1, 800), 2) * 0.999
    saturated = np.where(generator.uniform(size=1000) < 0.3, 1.0, generator.beta(9, 1, 1000))
    return {
        "uniform": (uniform, generator.uniform(size=500) < uniform),
        "ties": (coarse, generator.uniform(size=800) < 0.7),
        "saturated": (saturated, generator.uniform(size=1000) < 0.8),
        "zeros and ones": (np.repeat([0.0, 1.0], 50), np.arange(100) % 3 == 0),
        "all wrong at 1": (np.ones(20), np.zeros(20, dtype=bool)),
        "all right at 1": (np.ones(20), np.ones(20, dtype=bool)),
        "all right at 0": (np.zeros(20), np.ones(20, dtype=bool)),
        "one sample": (np.array([0.73]), np.array([False])),
        "two far apart": (np.array([0.02, 0.97]), np.array([True, False])),
        "reversed": (uniform, generator.uniform(size=500) < 1 - uniform),
    }


CASES = adversarial()


@pytest.mark.parametrize(("n", "classes"), SHAPES)
@pytest.mark.parametrize("norm", ["l1", "max"])
def test_ece_and_mce_match_torchmetrics(draw, n: int, classes: int, norm: str) -> None:
    probabilities, labels = draw(n, classes, dtype=torch.float32)
    ours = {"l1": metrics.ece, "max": metrics.mce}[norm](probabilities, labels)
    theirs = multiclass_calibration_error(probabilities, labels, classes, n_bins=15, norm=norm)
    # Theirs adds up in float32.
    assert ours.item() == pytest.approx(theirs.item(), abs=rounding(n))


def test_torchmetrics_phantom_bin_for_confidence_one() -> None:
    """They give 1.0 a bin of its own; we keep it in the last, as the definition says."""
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.95, 0.05], [0.95, 0.05]])
    labels = torch.tensor([1, 0, 0, 0])
    theirs = multiclass_calibration_error(rows, labels, 2, n_bins=15)
    assert theirs.item() == pytest.approx((2 * 0.5 + 2 * 0.05) / 4, abs=1e-6)
    assert metrics.ece(rows, labels).item() == pytest.approx(abs(3.9 / 4 - 3 / 4), abs=1e-6)


@pytest.mark.parametrize(("n", "classes"), SHAPES)
def test_binned_errors_match_netcal(draw, n: int, classes: int) -> None:
    probabilities, labels = draw(n, classes)
    arrays = probabilities.numpy(), labels.numpy()
    if classes == 2:  # netcal reads two columns as a binary problem, not as a top label
        confidence, predicted = probabilities.max(-1)
        arrays = confidence.numpy(), (predicted == labels).long().numpy()
    for ours, theirs in (
        (metrics.ece, netcal.metrics.ECE),
        (metrics.mce, netcal.metrics.MCE),
        (metrics.average_ce, netcal.metrics.ACE),
    ):
        expected = theirs(15).measure(*arrays)
        assert ours(probabilities, labels).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_binned_errors_match_netcal_on_adversarial_pairs(name: str) -> None:
    confidence, correct = CASES[name]
    for ours, theirs in ((metrics.ece, netcal.metrics.ECE), (metrics.mce, netcal.metrics.MCE)):
        expected = theirs(15).measure(confidence, correct.astype(int))
        assert ours(confidence, correct).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("n", "classes"), SHAPES)
def test_scores_match_scikit_learn(draw, n: int, classes: int) -> None:
    probabilities, labels = draw(n, classes)
    known = list(range(classes))
    loss = sklearn.metrics.log_loss(labels, probabilities, labels=known)
    assert metrics.nll(probabilities, labels).item() == pytest.approx(loss, rel=1e-12)
    square = sklearn.metrics.brier_score_loss(
        labels, probabilities, labels=known, scale_by_half=False
    )
    assert metrics.brier(probabilities, labels).item() == pytest.approx(square, rel=1e-12)
    wrong = sklearn.metrics.zero_one_loss(labels, probabilities.argmax(-1))
    assert metrics.error(probabilities, labels).item() == pytest.approx(wrong, abs=1e-15)


def test_binary_brier_is_twice_scikit_learns(draw) -> None:
    probabilities, labels = draw(classes=2)
    half = sklearn.metrics.brier_score_loss(labels, probabilities[:, 1])
    assert metrics.brier(probabilities, labels).item() == pytest.approx(2 * half, rel=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_smooth_ece_matches_relplot_on_adversarial_pairs(name: str) -> None:
    confidence, correct = CASES[name]
    expected, width = relplot.smECE(confidence, correct.astype(float), return_width=True)
    # relplot adds 1e-4 to the density that it divides by; undo it.
    points = np.linspace(0, 1, max(round(10 / width), relplot.config.smECE_mesh_pts))
    kernel = relplot.kernels.ReflectedGaussianKernel(width)
    density = kernel.apply(confidence, np.ones_like(confidence), points).mean()
    found = metrics.smooth_ece(confidence, correct).item()
    assert found == pytest.approx(expected * (1 + 1e-4 / density), rel=1e-12)


@pytest.mark.parametrize("sharpness", [0.3, 1.0, 1.2, 2.0, 8.0])
def test_smooth_ece_matches_relplot_on_networks(draw, sharpness: float) -> None:
    probabilities, labels = draw(20_000, 10, sharpness=sharpness)
    confidence, predicted = probabilities.max(-1)
    expected = relplot.smECE(confidence.numpy(), (predicted == labels).double().numpy())
    found = metrics.smooth_ece(probabilities, labels).item()
    # Below a bandwidth of 0.01 relplot's grid may place its kernel half a cell off centre.
    assert found == pytest.approx(expected, rel=1e-6 if expected > 0.012 else 2e-3)


def test_smooth_ece_of_very_many_samples_matches_relplot(draw) -> None:
    probabilities, labels = draw(200_000, 2, sharpness=1.3, dtype=torch.float32)
    confidence, predicted = probabilities.max(-1)
    expected = relplot.smECE(confidence.double().numpy(), (predicted == labels).double().numpy())
    assert metrics.smooth_ece(probabilities, labels).item() == pytest.approx(expected, rel=1e-4)
