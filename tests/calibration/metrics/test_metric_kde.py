"""KDE-ECE against its integral, computed sample by sample."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from calibration import metrics
from calibration.metrics import bootstrap
from calibration.metrics.kde import CELLS
from calibration.metrics.predictions import Predictions

MESH = 40_000


def integral(confidence: np.ndarray, correct: np.ndarray) -> float:
    """∫ |z − π(z)| p(z) dz by the midpoint rule, every sample with its two reflections."""
    width = 3 * 1.06 * np.std(confidence) * len(confidence) ** -0.2
    z = (np.arange(MESH) + 0.5) / MESH
    mass, hits = np.zeros(MESH), np.zeros(MESH)
    for level, right in zip(confidence, correct, strict=True):
        for image in (level, -level, 2 - level):
            u = (z - image) / width
            kernel = 35 / 32 * np.clip(1 - u * u, 0, None) ** 3 / width / len(confidence)
            mass += kernel
            hits += right * kernel
    safe = np.where(mass > 0, mass, 1)
    return float((np.abs(z - hits / safe) * mass).mean())


@pytest.mark.parametrize("sharpness", [0.4, 1.0, 4.0])
def test_grid_agrees_with_the_integral(draw, sharpness: float) -> None:
    probabilities, labels = draw(300, 4, sharpness=sharpness)
    confidence, predicted = probabilities.max(-1)
    correct = predicted == labels
    expected = integral(confidence.numpy(), correct.numpy())
    # Sharing a sample between two nodes moves the integrand by (cell/h)²/8 at most, and h is
    # 0.03 at least in these samples.
    tolerance = (1 / CELLS / 0.03) ** 2
    assert metrics.kde_ece(probabilities, labels).item() == pytest.approx(expected, rel=tolerance)


def test_samples_at_both_ends_are_reflected() -> None:
    confidence = np.array([0.0, 0.02, 0.5, 0.97, 1.0, 1.0])
    correct = np.array([True, False, True, True, False, True])
    found = metrics.kde_ece(confidence, correct).item()
    assert found == pytest.approx(integral(confidence, correct), rel=1e-5)


@pytest.mark.parametrize("level", [0.0, 0.3, 0.73, 1.0])
def test_one_confidence_leaves_the_plain_gap(level: float) -> None:
    """Its standard deviation is 0, and so is the bandwidth."""
    correct = np.arange(10) < 6
    assert metrics.kde_ece(np.full(10, level), correct).item() == pytest.approx(abs(level - 0.6))


def test_it_converges_to_the_true_error() -> None:
    """Confidences uniform on (0.3, 0.9), right 0.1 less often than they say."""
    generator = torch.Generator().manual_seed(0)
    confidence = 0.3 + 0.6 * torch.rand(200_000, generator=generator, dtype=torch.float64)
    correct = torch.rand(200_000, generator=generator) < confidence - 0.1
    # The mean gap has a standard error of 0.0011; smoothing moves z by nothing on average.
    assert metrics.kde_ece(confidence, correct).item() == pytest.approx(0.1, abs=0.004)


def test_intervals_cover_the_true_error() -> None:
    """Of 25 intervals of 95 %, 20 or fewer cover with a probability below 1 %."""
    generator = torch.Generator().manual_seed(1)
    covered = 0
    for number in range(25):
        confidence = 0.3 + 0.6 * torch.rand(500, generator=generator, dtype=torch.float64)
        correct = torch.rand(500, generator=generator) < confidence - 0.08
        low, high = metrics.bootstrap_intervals(
            confidence, correct, metrics=["kde_ece"], resamples=100, seed=number
        )["kde_ece"]
        covered += low <= 0.08 <= high
    assert covered > 20


def test_resamples_keep_the_bandwidth_of_the_sample(draw) -> None:
    """On a resample that is the sample itself, the features give the metric to rounding."""
    predictions = Predictions.of(*draw(200, 3))
    once = torch.ones(1, 200, dtype=torch.uint8)
    values, _ = metrics.METRICS["kde_ece"].resampled(predictions, 15, once)
    plain = bootstrap.recomputed(metrics.METRICS["kde_ece"], predictions, 15, once)[0]
    torch.testing.assert_close(values, plain)
