from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from netcal.scaling import BetaCalibration
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from calibration import calibrators
from calibration.calibrators.logistic import DECREMENT_TOLERANCE, logistic_regression
from calibration.calibrators.one_vs_rest import scores

PLANTED = {
    "platt_logits": (0.5, -1.0),
    "quadratic": (0.7, 0.5, -0.15),
    "beta": (0.6, 1.4, 0.4),
}


def features(name: str, s: torch.Tensor) -> torch.Tensor:
    log_p, log_not_p = s.sigmoid().log(), (-s).sigmoid().log()
    return {
        "platt_logits": torch.stack([s, torch.ones_like(s)]),
        "quadratic": torch.stack([s, torch.ones_like(s), s**2]),
        "beta": torch.stack([log_p, -log_not_p, torch.ones_like(s)]),
    }[name]


@pytest.mark.parametrize("name", PLANTED)
def test_planted_parameters_are_recovered(name: str, binary) -> None:
    truth = torch.tensor(PLANTED[name], dtype=torch.float64)
    logits, labels = binary(lambda s: (truth @ features(name, s)).sigmoid(), 40_000)
    fitted = calibrators.fit(name, logits, labels)
    assert fitted.converged
    np.testing.assert_allclose(fitted.maps[0], truth, atol=0.06)


@pytest.mark.parametrize("name", ["platt_logits", "quadratic"])
def test_binary_fit_matches_scikit_learn(name: str, binary) -> None:
    logits, labels = binary(lambda s: (0.5 * s - 1).sigmoid(), 2000)
    x = features(name, logits[:, 1]).numpy()
    # A standard normal prior around θ₀ is a ridge on θ − θ₀: not scikit-learn's; but at
    # N = 2000 one observation more or less is all the difference.
    regression = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-10, max_iter=1000)
    expected = regression.fit(x.T, labels.numpy()).coef_[0]
    fitted = calibrators.fit(name, logits, labels)
    np.testing.assert_allclose(fitted.maps[0], expected, atol=0.01)


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_platt_on_probabilities_matches_scikit_learn(classes, gaussians, oracle) -> None:
    problem = gaussians(600, classes, factor=0.5)
    p = problem.logits.softmax(1).numpy()
    theirs = oracle.SklearnCalibrator(method="sigmoid").fit(p, problem.labels.numpy())
    fitted = calibrators.fit("platt_probabilities", problem.logits, problem.labels)
    assert fitted.converged
    np.testing.assert_allclose(fitted(problem.logits), theirs.predict_proba(p), atol=1e-4)


def test_beta_matches_netcal(binary) -> None:
    logits, labels = binary(lambda s: (0.5 * s - 1).sigmoid(), 3000)
    p = logits.softmax(1)[:, 1].numpy()
    theirs = BetaCalibration(method="mle").fit(p, labels.numpy(), random_state=0)
    found = calibrators.fit("beta", logits, labels)(logits)[:, 1].numpy()
    np.testing.assert_allclose(found, theirs.transform(p), atol=0.01)


@pytest.mark.parametrize("turned", [(-0.8, 1.0), (1.0, -0.8), (-0.8, -0.8)])
def test_beta_keeps_its_sign_constraints(turned: tuple[float, float], binary) -> None:
    theta = torch.tensor([*turned, 0.3], dtype=torch.float64)
    logits, labels = binary(lambda s: (theta @ features("beta", s)).sigmoid(), 800)
    fitted = calibrators.fit("beta", logits, labels).maps[0]
    x, y = features("beta", logits[:, 1]).numpy(), labels.numpy()
    centre = np.array([1.0, 1.0, 0.0])

    def objective(t: np.ndarray) -> float:
        eta = t @ x
        return float((np.logaddexp(0, eta) - y * eta).mean() + ((t - centre) ** 2).sum() / 1600)

    bounds = [(0, None), (0, None), (None, None)]
    best = minimize(objective, centre, bounds=bounds, method="L-BFGS-B", tol=1e-14)
    assert (fitted[:2] >= 0).all()
    assert objective(fitted) == pytest.approx(best.fun, abs=1e-8)
    np.testing.assert_allclose(fitted, best.x, atol=1e-3)


@pytest.mark.parametrize("name", [*PLANTED, "platt_probabilities"])
def test_separable_classes_leave_finite_parameters(name: str) -> None:
    s = torch.linspace(-3, 3, 40).double()
    logits = torch.stack([torch.zeros_like(s), s], dim=1)
    fitted = calibrators.fit(name, logits, (s > 0).long())
    assert np.isfinite(fitted.maps[0]).all()
    assert np.abs(fitted.maps[0]).max() < 50


def test_one_versus_rest_normalises_each_class_by_itself(gaussians) -> None:
    problem = gaussians(500, 4, factor=2.0)
    fitted = calibrators.fit("platt_logits", problem.logits, problem.labels)
    columns = []
    for k in range(4):
        rest = torch.logsumexp(problem.logits[:, [j for j in range(4) if j != k]], dim=1)
        two = torch.stack([rest, problem.logits[:, k]], dim=1)
        columns.append(
            calibrators.fit("platt_logits", two, (problem.labels == k).long())(two)[:, 1]
        )
    expected = torch.stack(columns, dim=1)
    expected = expected / expected.sum(1, keepdim=True)
    torch.testing.assert_close(fitted(problem.logits), expected, rtol=0, atol=1e-9)


def test_scores_keep_what_rounding_would_lose() -> None:
    logits = torch.tensor([[0.0, -60.0, -80.0], [1e4, -1e4, 0.0]]).double()
    p0, p1, _ = scores(logits)
    # 1 − p of class 0 is e^−60 + e^−80, far below float64's resolution at 1.
    assert p0.log_not_p[0] == pytest.approx(-60 + np.log1p(np.exp(-20)), abs=1e-9)
    assert p0.log_odds[1] == pytest.approx(1e4)
    assert p1.log_odds[1] == pytest.approx(-2e4)


@given(st.integers(0, 10_000), st.integers(1, 4), st.sampled_from([1e-3, 1.0, 1e3]))
@settings(max_examples=40, deadline=None)
def test_newton_finds_the_minimum(seed: int, size: int, scale: float) -> None:
    random = np.random.default_rng(seed)
    x = random.normal(size=(size, 30)) * scale ** np.arange(size)[:, None]
    target = random.uniform(size=30)
    penalty = np.diag(random.uniform(0.01, 1, size=size))
    centre = random.normal(size=size)
    theta, converged = logistic_regression(x, target, penalty, centre)
    assert converged
    p = expit(theta @ x)
    gradient = x @ (p - target) / 30 + penalty @ (theta - centre)
    curvature = np.sqrt(((x * p * (1 - p)) @ x.T / 30 + penalty).diagonal())
    assert np.abs(gradient / curvature).max() < 1e-5


def test_blocks_of_samples_add_up() -> None:
    random = np.random.default_rng(0)
    x, target = random.normal(size=(2, 10_000)), random.uniform(size=10_000)
    theta, _ = logistic_regression(x, target, np.zeros((2, 2)), np.zeros(2))
    # It stops where gᵀH⁻¹g is below its tolerance, and the largest curvature is about 1/4.
    gradient = x @ (expit(theta @ x) - target) / 10_000
    np.testing.assert_allclose(gradient, 0, atol=np.sqrt(DECREMENT_TOLERANCE / 4))


def test_platt_scaling_of_probabilities_says_that_it_fell_back() -> None:
    """σ(a·p + b) has no steps: it cannot say as much as probabilities that are right already."""
    p = torch.linspace(0.0005, 0.9995, 2000).double()
    logits = torch.stack([(1 - p).log(), p.log()], 1)
    labels = (torch.rand(2000, generator=torch.Generator().manual_seed(0)) < p).long()
    fitted = calibrators.fit("platt_probabilities", logits, labels)
    assert not fitted.converged
    assert torch.equal(fitted(logits), logits.softmax(1))
