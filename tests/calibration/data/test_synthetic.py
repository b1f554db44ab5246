from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm
from sklearn.datasets import make_blobs
from torch import Tensor

from calibration.data import PROTOCOLS, load_dataset
from calibration.data.blobs import CENTRES

SYNTHETIC = ["blobs-1.3", "blobs-1.7", "spiral-2.5", "spiral-3.5", "bac"]


def posterior(name: str, inputs: Tensor) -> Tensor:
    found = load_dataset(name, {}).posterior(inputs)
    assert found is not None
    return found


def test_centres_are_those_of_make_blobs() -> None:
    _, _, centres = make_blobs(
        n_samples=10, centers=5, center_box=(-10, 10), random_state=35, return_centers=True
    )
    np.testing.assert_array_equal(CENTRES, centres)


@pytest.mark.parametrize(
    ("name", "accuracy"),
    [
        ("blobs-1.3", 0.9360),
        ("blobs-1.7", 0.8702),
        ("spiral-2.5", 0.9213),
        ("spiral-3.5", 0.8274),
        ("bac", 0.9932),
    ],
)
def test_bayes_accuracy(name: str, accuracy: float) -> None:
    """Values of a draw of a million points; they match the accuracies BO4SC reports."""
    test = load_dataset(name, {"test_points": 60_000}).test(0)
    exact = posterior(name, test.inputs)
    assert float(exact.max(dim=1).values.mean()) == pytest.approx(accuracy, abs=0.002)
    hits = (exact.argmax(dim=1) == test.labels).double().mean()
    assert float(hits) == pytest.approx(accuracy, abs=0.006)


@pytest.mark.parametrize("name", SYNTHETIC)
def test_posterior_agrees_with_simulated_frequencies(name: str) -> None:
    """In cells of the input space, labels occur as often as the posterior says."""
    test = load_dataset(name, {"test_points": 120_000}).test(7)
    exact = posterior(name, test.inputs).numpy()
    if name == "bac":
        # Where the decision is open, in slices of P(above) too: elsewhere it is certain.
        level = np.digitize(exact[:, 1], np.linspace(0, 1, 11)[1:-1])
        cells = level * 2 + test.inputs[:, 0].long().numpy()
    else:
        bins = ((test.inputs + 30) / 3).floor().clamp(0, 20).long()
        cells = (bins[:, 0] * 21 + bins[:, 1]).numpy()
    gap = np.eye(exact.shape[1])[test.labels.numpy()] - exact
    scores = []
    for k in range(exact.shape[1]):
        total = np.bincount(cells, weights=gap[:, k])
        variance = np.bincount(cells, weights=exact[:, k] * (1 - exact[:, k]))
        enough = variance > 9
        scores.append(total[enough] / np.sqrt(variance[enough]))
    flat = np.concatenate(scores)
    assert len(flat) >= 20
    assert np.abs(flat).max() < 5
    assert np.mean(flat**2) == pytest.approx(1, abs=0.5)


@pytest.mark.parametrize("deviation", [1.3, 1.7])
def test_blobs_posterior_is_bayes_rule(deviation: float) -> None:
    points = np.random.default_rng(1).uniform(-12, 12, (50, 2))
    densities = np.stack(
        [multivariate_normal(c, deviation**2).pdf(points) for c in CENTRES], axis=1
    )
    expected = densities / densities.sum(1, keepdims=True)
    found = posterior(f"blobs-{deviation}", torch.from_numpy(points))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("deviation", [2.5, 3.5])
def test_spiral_posterior_matches_adaptive_integration(deviation: float) -> None:
    points = np.random.default_rng(2).uniform(-40, 40, (25, 2))
    found = posterior(f"spiral-{deviation}", torch.from_numpy(points))

    def integral(point: np.ndarray, sign: int, offset: float) -> float:
        def integrand(u: float) -> float:
            t = 3 * np.pi * np.sqrt(u)
            gap = point - sign * 2.6 * t * np.array([np.cos(t), np.sin(t)])
            return float(np.exp((offset - gap @ gap) / (2 * deviation**2)))

        edges = np.linspace(0, 1, 30)[1:-1]
        return float(quad(integrand, 0, 1, limit=500, epsabs=0, epsrel=1e-11, points=edges)[0])

    angles = np.linspace(0, 3 * np.pi, 2000)
    curve = 2.6 * angles[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    for point, row in zip(points, found, strict=True):
        offset = min(((point - s * curve) ** 2).sum(1).min() for s in (1, -1))
        first, second = (integral(point, sign, offset) for sign in (1, -1))
        assert float(row[0]) == pytest.approx(first / (first + second), abs=1e-10)


def test_bac_posterior_by_hand() -> None:
    # A man of 80 kg: 10·6 g·0.9 / (0.68·80) − 0.15·1 = 0.842647 g/L, noise 0.02, limit 0.8.
    # A woman of 60 kg: 10·3 g·1 / (0.55·60) − 0.15·0.5 = 0.834091 g/L.
    inputs = torch.tensor([[1, 80, 6, 1, 1], [0, 60, 3, 0, 0.5]], dtype=torch.float64)
    found = posterior("bac", inputs)[:, 1]
    expected = norm.cdf([(0.8426470588 - 0.8) / 0.02, (0.8340909091 - 0.8) / 0.02])
    np.testing.assert_allclose(found, expected, atol=1e-8)


def test_bac_inputs_have_the_stated_distribution() -> None:
    male, weight, units, meal, hours = (
        load_dataset("bac", {"test_points": 100_000}).test(0).inputs.numpy().T
    )
    assert male.mean() == pytest.approx(0.5, abs=0.01)
    for sex, mean, deviation in ((1, 78, 12), (0, 65, 11)):
        assert weight[male == sex].mean() == pytest.approx(mean, abs=0.25)
        assert weight[male == sex].std() == pytest.approx(deviation, abs=0.2)
    np.testing.assert_allclose(np.bincount(units.astype(int)) / 1e5, 1 / 11, atol=0.005)
    np.testing.assert_allclose(np.bincount(meal.astype(int)) / 1e5, 1 / 3, atol=0.008)
    assert hours.min() >= 0.25
    assert hours.max() <= 6
    assert hours.mean() == pytest.approx(3.125, abs=0.03)


@pytest.mark.parametrize("name", SYNTHETIC)
def test_posterior_rows_sum_to_one_and_float32_is_accepted(name: str) -> None:
    dataset = load_dataset(name, {})
    inputs = dataset.test(0).inputs
    exact = posterior(name, inputs)
    assert exact.shape == (1000, dataset.classes)
    assert exact.dtype == torch.float64
    np.testing.assert_allclose(exact.sum(1), 1, atol=1e-12)
    np.testing.assert_allclose(posterior(name, inputs.float()), exact, atol=1e-3)


@pytest.mark.parametrize("name", SYNTHETIC)
def test_every_seed_and_part_is_a_stream_of_its_own(name: str) -> None:
    dataset, again = load_dataset(name, {}), load_dataset(name, {})
    assert dataset.independent_draws
    assert dataset.test(1).inputs.equal(again.test(1).inputs)
    assert dataset.test(1).labels.equal(again.test(1).labels)
    protocol = PROTOCOLS["honest"]
    parts = [dataset.test(seed) for seed in (1, 2)]
    for seed in (1, 2):
        splits = dataset.split(protocol, seed, held_out=False)
        assert splits.train.inputs.equal(again.split(protocol, seed, held_out=False).train.inputs)
        parts += [splits.train, splits.validation]
    rows = torch.cat([part.inputs for part in parts])
    assert len(rows.unique(dim=0)) == len(rows)


def test_a_companion_run_can_test_on_more_points() -> None:
    small, large = load_dataset("bac", {}), load_dataset("bac", {"test_points": 20_000})
    assert len(large.test(0).labels) == 20_000
    splits = [d.split(PROTOCOLS["honest"], 0, held_out=False) for d in (small, large)]
    assert splits[0].train.inputs.equal(splits[1].train.inputs)
    assert small.fingerprint != large.fingerprint
    assert small.fingerprint == load_dataset("bac", {}).fingerprint


def test_fingerprints_tell_the_generators_apart() -> None:
    assert len({load_dataset(name, {}).fingerprint for name in SYNTHETIC}) == len(SYNTHETIC)
