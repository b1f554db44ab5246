from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn.functional import cross_entropy

from calibration import calibrators
from calibration.calibrators.softmax_regression import (
    GRADIENT_TOLERANCE,
    DiagonalLogits,
    FullLogits,
    PenalisedNLL,
)

AFFINE = ["vector", "structured_vector", "matrix", "structured_matrix", "dirichlet"]


@pytest.mark.parametrize("affine", [DiagonalLogits(), FullLogits()])
def test_gradient_and_hessian_are_those_of_autograd(affine) -> None:
    generator = torch.Generator().manual_seed(0)
    # More rows than one block holds.
    x = torch.randn(700, 256, generator=generator, dtype=torch.float64)[:, :4].contiguous()
    x = x.repeat(30, 1)
    labels = torch.randint(4, (len(x),), generator=generator)
    size = 8 if isinstance(affine, DiagonalLogits) else 20
    ridge = torch.rand(size, generator=generator, dtype=torch.float64)
    theta = torch.randn(size, generator=generator, dtype=torch.float64)
    v = torch.randn(size, generator=generator, dtype=torch.float64)
    objective = PenalisedNLL(affine, x, labels, ridge)

    def written_out(t: Tensor) -> Tensor:
        return cross_entropy(x + affine.change(x, t), labels) + (ridge * t.square()).sum()

    value, gradient = objective.value_and_gradient(theta.numpy())
    assert value == pytest.approx(float(written_out(theta)), rel=1e-12)
    expected = torch.func.grad(written_out)(theta)
    torch.testing.assert_close(torch.from_numpy(gradient), expected, rtol=1e-10, atol=1e-12)
    # Asked at another point than the last evaluation's, as after a rejected step.
    objective.value_and_gradient(v.numpy())
    product = torch.from_numpy(objective.hessian_product(theta.numpy(), v.numpy()))
    expected = torch.func.hessian(written_out)(theta) @ v
    torch.testing.assert_close(product, expected, rtol=1e-9, atol=1e-11)


def by_hand(name: str, z: Tensor, temperature: float) -> tuple[Tensor, np.ndarray]:
    """The features and the ridge of each family, written out a second time."""
    samples, k = z.shape
    diagonal = np.eye(k, dtype=bool)
    log_p = z.log_softmax(1)
    mixed = (z / temperature).softmax(1) * samples / (samples + 1) + 1 / (samples + 1) / k
    weak = np.full(2 * k, k / samples)
    strong = np.where(diagonal, k / samples, k * (k - 1) / samples)
    odir = np.where(diagonal, 0.5 / samples, 1e-3)
    return {
        "vector": ((z - z.mean(1, keepdim=True)) / temperature, np.full(2 * k, 0.5 / samples)),
        "structured_vector": (mixed.log(), weak),
        "matrix": ((z - z.mean(1, keepdim=True)) / temperature, np.full(k * k + k, 0.5 / samples)),
        "structured_matrix": (mixed.log(), np.append(strong, np.full(k, k / samples))),
        "dirichlet": (log_p / temperature, np.append(odir, np.full(k, 1e-3))),
    }[name]


@pytest.mark.parametrize("name", AFFINE)
def test_fit_is_the_optimum_that_scipy_finds(name: str, gaussians) -> None:
    problem = gaussians(400, 4, factor=2.0)
    z, labels, k = problem.logits, problem.labels, 4
    fitted = calibrators.fit(name, z, labels)
    assert fitted.converged
    x, ridge = by_hand(name, z, calibrators.fit("temperature", z, labels).temperature)

    def probabilities(theta: np.ndarray) -> np.ndarray:
        t = torch.from_numpy(theta)
        if len(theta) == 2 * k:
            return (x * (1 + t[:k]) + t[k:]).softmax(1).numpy()
        weights = torch.eye(k).double() + t[: k * k].view(k, k)
        return (x @ weights.T + t[k * k :]).softmax(1).numpy()

    def objective(theta: np.ndarray) -> float:
        true = probabilities(theta)[np.arange(len(z)), labels.numpy()]
        return -np.log(true).mean() + (ridge * theta**2).sum()

    found = minimize(objective, np.zeros(len(ridge)), method="BFGS", options={"gtol": 1e-6})
    assert objective(fitted.theta.numpy()) <= found.fun + 1e-9
    np.testing.assert_allclose(fitted(z).numpy(), probabilities(found.x), atol=2e-3)


@pytest.mark.parametrize(
    ("name", "reference"),
    [("structured_vector", "SVSCalibrator"), ("structured_matrix", "SMSCalibrator")],
)
def test_structured_scaling_matches_probmetrics(
    name, reference, gaussians, oracle, monkeypatch
) -> None:
    # Theirs rounds to float32 and then stops where the loss no longer moves, which leaves the
    # parameters open to the second digit: let it minimise the same loss in float64, to the end.
    to_the_end = partial(
        oracle.logistic.torchmin.minimize, options={"gtol": 1e-8, "xtol": 0, "gtd_tol": 0}
    )
    monkeypatch.setattr(oracle.logistic.torchmin, "minimize", to_the_end)
    monkeypatch.setattr(oracle.logistic, "multiclass_probs_to_logits", np.log)
    fitting, fresh = gaussians(800, 5, factor=2.5), gaussians(300, 5, factor=2.5, seed=1)
    theirs = getattr(oracle, reference)()
    theirs.fit(fitting.logits.softmax(1).numpy(), fitting.labels.numpy())
    expected = torch.from_numpy(theirs.predict_proba(fresh.logits.softmax(1).numpy())).double()
    ours = calibrators.fit(name, fitting.logits, fitting.labels)(fresh.logits)
    # Ours stops at this gradient, and the ridge alone bends the loss by 2 · 5/800: so far may
    # its parameters be off, and probabilities about as far.
    off = GRADIENT_TOLERANCE / (2 * 5 / 800)
    torch.testing.assert_close(ours, expected, rtol=0, atol=off)


def test_matrix_scaling_matches_scikit_learn(gaussians) -> None:
    problem = gaussians(20_000, 3, factor=2.0)
    z = problem.logits - problem.logits.mean(1, keepdim=True)
    # Centred logits have one dimension less than classes.
    regression = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000)
    expected = regression.fit(z[:, :2].numpy(), problem.labels.numpy()).predict_proba(z[:, :2])
    found = calibrators.fit("matrix", problem.logits, problem.labels)(problem.logits).numpy()
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_planted_vector_scaling_is_recovered(gaussians) -> None:
    problem = gaussians(40_000, 3, factor=1.5)
    z = problem.logits - problem.logits.mean(1, keepdim=True)
    truth = (z * torch.tensor([0.4, 0.8, 1.2]) + torch.tensor([0.5, 0.0, -0.5])).softmax(1)
    generator = torch.Generator().manual_seed(0)
    labels = torch.multinomial(truth, 1, generator=generator).squeeze(1)
    fitted = calibrators.fit("vector", problem.logits, labels)
    weights = (1 + fitted.theta[:3]) / fitted.temperature
    torch.testing.assert_close(weights, torch.tensor([0.4, 0.8, 1.2]).double(), rtol=0, atol=0.05)
    intercepts = fitted.theta[3:] - fitted.theta[3:].mean()
    torch.testing.assert_close(
        intercepts, torch.tensor([0.5, 0.0, -0.5]).double(), rtol=0, atol=0.05
    )


@pytest.mark.parametrize("name", ["matrix", "dirichlet", "structured_matrix"])
def test_planted_confusion_is_recovered_by_a_matrix(name: str, gaussians) -> None:
    problem = gaussians(20_000, 5, factor=2.0)
    z = problem.logits - problem.logits.mean(1, keepdim=True)
    planted = 0.5 * torch.eye(5).double()
    planted[0, 1], planted[2, 3], planted[4, 0] = 0.4, -0.4, 0.3
    truth = (z @ planted.T).softmax(1)
    generator = torch.Generator().manual_seed(0)
    labels = torch.multinomial(truth, 1, generator=generator).squeeze(1)

    def error(each: str) -> float:
        fitted = calibrators.fit(each, problem.logits, labels)
        return float((fitted(problem.logits) - truth).abs().mean())

    assert error(name) < 0.25 * error("temperature")
    assert error(name) < 0.5 * error("vector")


@pytest.mark.parametrize("name", AFFINE)
def test_absent_classes_stay_possible(name: str, gaussians) -> None:
    problem = gaussians(300, 5, factor=2.0)
    present = problem.labels < 3
    fitted = calibrators.fit(name, problem.logits[present], problem.labels[present])
    assert fitted.converged
    assert float(fitted(problem.logits).min()) > 0


@pytest.mark.parametrize("name", AFFINE)
def test_without_a_best_temperature_no_fit_has_converged(name: str) -> None:
    logits = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)).double()
    assert not calibrators.fit(name, logits, logits.argmax(1)).converged
