from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from probmetrics.distributions import CategoricalLogits
from scipy.optimize import minimize_scalar
from torch.nn.functional import cross_entropy

from calibration import calibrators


@pytest.mark.parametrize("factor", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("classes", [2, 10])
def test_planted_temperature_is_recovered(factor: float, classes: int, gaussians) -> None:
    problem = gaussians(20_000, classes, factor=factor)
    fitted = calibrators.fit("temperature", problem.logits, problem.labels)
    assert fitted.converged
    # The information on 1/T is the mean variance of the logits under the posterior.
    mean = (problem.posterior * problem.logits).sum(1, keepdim=True)
    variance = (problem.posterior * (problem.logits - mean).square()).sum(1)
    standard_error = float(variance.sum().rsqrt())
    assert standard_error < 0.05 / factor
    assert 1 / fitted.temperature == pytest.approx(1 / factor, abs=3 * standard_error)
    torch.testing.assert_close(fitted(problem.logits), problem.posterior, rtol=0, atol=0.03)


def test_temperature_is_the_minimum_that_scipy_finds(gaussians) -> None:
    problem = gaussians(300, 5, factor=4.0)
    found = minimize_scalar(
        lambda u: float(cross_entropy(problem.logits * np.exp(-u), problem.labels)),
        bounds=(-5, 5),
        method="bounded",
        options={"xatol": 1e-10},
    )
    fitted = calibrators.fit("temperature", problem.logits, problem.labels)
    assert fitted.temperature == pytest.approx(np.exp(found.x), rel=1e-6)


def test_temperature_matches_probmetrics(gaussians, oracle) -> None:
    problem = gaussians(500, 4, factor=0.2)
    reference = oracle.TemperatureScalingCalibrator(max_bisection_steps=60)
    reference.fit_torch(CategoricalLogits(problem.logits), problem.labels)
    fitted = calibrators.fit("temperature", problem.logits, problem.labels)
    assert fitted.temperature == pytest.approx(1 / reference.invtemp_, rel=1e-8)


@pytest.mark.parametrize("samples", [5, 50])
def test_all_right_stops_at_what_the_sample_size_supports(samples: int) -> None:
    logits = torch.randn(samples, 3, generator=torch.Generator().manual_seed(0)).double()
    labels = logits.argmax(1)
    fitted = calibrators.fit("temperature", logits, labels)
    assert not fitted.converged
    assert 0 < fitted.temperature < 1
    nll = float(cross_entropy(logits / fitted.temperature, labels))
    assert nll == pytest.approx(1 / (samples + 1), rel=1e-6)


def test_all_right_and_sure_already_is_left_alone() -> None:
    logits = 100 * torch.eye(3).double()
    fitted = calibrators.fit("temperature", logits, torch.arange(3))
    assert fitted.temperature == 1.0


def test_tied_winners_leave_a_finite_temperature() -> None:
    logits = torch.tensor([[1.0, 1.0, 0.0]] * 9 + [[0.0, 2.0, 0.0]])
    fitted = calibrators.fit("temperature", logits, torch.tensor([0] * 9 + [1]))
    # NLL cannot fall below 0.9 log 2; it stops 1/11 above that.
    nll = float(cross_entropy(logits.double() / fitted.temperature, torch.tensor([0] * 9 + [1])))
    assert nll == pytest.approx(0.9 * np.log(2) + 1 / 11, rel=1e-6)


def test_logits_that_mislead_become_even_odds() -> None:
    logits = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    fitted = calibrators.fit("temperature", logits, logits.argmin(1))
    assert fitted.temperature == 1e8
    assert not fitted.converged
    torch.testing.assert_close(fitted(logits), torch.full((60, 3), 1 / 3).double())


@given(
    arrays(np.float64, (8, 3), elements=st.floats(-1e4, 1e4)),
    st.lists(st.integers(0, 2), min_size=8, max_size=8),
)
@settings(max_examples=60, deadline=None)
def test_no_other_temperature_is_better(logits: np.ndarray, labels: list[int]) -> None:
    z, y = torch.from_numpy(logits), torch.tensor(labels)
    fitted = calibrators.fit("temperature", z, y)
    assert 1e-8 <= fitted.temperature <= 1e8
    best = float(cross_entropy(z / fitted.temperature, y))
    others = [float(cross_entropy(z / t, y)) for t in [1.0, *np.geomspace(1e-2, 1e6, 60)]]
    # Where all are ranked right it stops 1/(N + 1) above the limit on purpose.
    slack = 1e-9 if fitted.converged else 1 / 9 + 1e-6
    assert best <= min(others) + slack + 1e-12 * best
    assert best <= others[0] * (1 + 1e-12)


def test_ensemble_weights_beat_every_mixture_of_a_grid(gaussians) -> None:
    problem = gaussians(400, 3, factor=3.0)
    labels = problem.labels.clone()
    labels[::10] = (labels[::10] + 1) % 3
    fitted = calibrators.fit("ensemble_temperature", problem.logits, labels)
    assert fitted.converged
    assert sum(fitted.weights) == pytest.approx(1)
    assert min(fitted.weights) >= 0

    def nll(p: torch.Tensor) -> float:
        return -float(p.gather(1, labels[:, None]).log().mean())

    z = problem.logits
    scaled, plain = (z / fitted.temperature).softmax(1), z.softmax(1)
    grid = np.linspace(0, 1, 41)
    mixtures = [
        nll(a * scaled + b * plain + (1 - a - b) / 3) for a in grid for b in grid if a + b <= 1
    ]
    assert nll(fitted(z)) <= min(mixtures) + 1e-9


def test_planted_mixture_is_recovered(gaussians) -> None:
    problem = gaussians(40_000, 4, seed=3)
    generator = torch.Generator().manual_seed(0)
    blurred = 0.7 * problem.posterior + 0.3 / 4
    labels = torch.multinomial(blurred, 1, generator=generator).squeeze(1)
    fitted = calibrators.fit("ensemble_temperature", problem.logits, labels)
    torch.testing.assert_close(fitted(problem.logits), blurred, rtol=0, atol=0.03)
    assert fitted.weights[2] == pytest.approx(0.3, abs=0.05)


def test_ensemble_matches_probmetrics(gaussians, oracle) -> None:
    problem = gaussians(1000, 4, factor=2.0)
    reference = oracle.ETSCalibrator(loss="ce")
    p = problem.logits.softmax(1).numpy()
    reference.fit(p, problem.labels.numpy())
    fitted = calibrators.fit("ensemble_temperature", problem.logits, problem.labels)
    assert fitted.temperature == pytest.approx(reference.t_, rel=1e-3)
    expected = torch.from_numpy(reference.predict_proba(p))
    torch.testing.assert_close(fitted(problem.logits), expected, rtol=0, atol=2e-3)
