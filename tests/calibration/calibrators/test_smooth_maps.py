from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.interpolate import CubicSpline
from scipy.special import expit

from calibration import calibrators
from calibration.calibrators.kernel import BANDWIDTHS, leave_one_out
from calibration.calibrators.logistic import logistic_regression
from calibration.calibrators.natural_spline import NaturalSplines
from calibration.calibrators.one_vs_rest import scores
from calibration.calibrators.spline import (
    SMOOTHINGS,
    SplineBasis,
    balanced_quantiles,
    out_of_fold,
    random_folds,
)

KNOTS = np.array([-2.0, -1.0, 0.5, 1.0, 4.0])


def test_natural_splines_interpolate_and_go_on_straight() -> None:
    values = np.array([1.0, -1.0, 2.0, 0.0, 0.5])
    theirs = CubicSpline(KNOTS, values, bc_type="natural")
    splines = NaturalSplines(KNOTS)
    inside = np.linspace(-2, 4, 40)
    np.testing.assert_allclose(splines(inside) @ values, theirs(inside), atol=1e-12)
    np.testing.assert_allclose(splines.slopes(inside) @ values, theirs(inside, 1), atol=1e-12)
    beyond = np.array([-5.0, 7.0])
    ends = np.array([-2.0, 4.0])
    expected = theirs(ends) + (beyond - ends) * theirs(ends, 1)
    np.testing.assert_allclose(splines(beyond) @ values, expected, atol=1e-12)


def test_roughness_is_the_integral_of_the_squared_second_derivative() -> None:
    weights = np.array([0.3, -2.0, 1.0, 0.4, -0.7])
    values = NaturalSplines(KNOTS).by_roughness() @ weights
    curve = CubicSpline(KNOTS, values, bc_type="natural")
    integral = sum(quad(lambda x: float(curve(x, 2)) ** 2, a, b)[0] for a, b in pairwise(KNOTS))
    # With x in units of the range 6, ∫ f″² grows by 6³; straight lines add nothing.
    assert integral * 6**3 == pytest.approx((weights[2:] ** 2).sum(), rel=1e-9)
    line = NaturalSplines(KNOTS).by_roughness()[:, :2] @ weights[:2]
    np.testing.assert_allclose(line, 0.3 * KNOTS - 2.0, atol=1e-12)


def test_quantiles_give_a_rare_class_half_the_knots() -> None:
    s = np.concatenate([np.linspace(-10, -1, 990), np.linspace(1, 2, 10)])
    target = (s > 0).astype(float)
    knots = balanced_quantiles(s, target, 11)
    assert (knots > 0).sum() >= 5
    assert knots[0] == -10
    assert knots[-1] == 2
    assert (np.diff(knots) > 0).all()
    assert len(balanced_quantiles(np.array([3.0]), np.array([1.0]), 10)) == 2


def test_spline_recovers_a_bent_curve_that_platt_cannot(binary) -> None:
    def truth(s: torch.Tensor) -> torch.Tensor:
        return (0.3 * s + 1.5 * (2 * s).tanh()).sigmoid()

    logits, labels = binary(truth, 20_000)
    at = torch.linspace(-5, 5, 101).double()
    fresh = torch.stack([torch.zeros_like(at), at], dim=1)

    def error(name: str) -> float:
        found = calibrators.fit(name, logits, labels)(fresh)[:, 1]
        return float((found - truth(at)).abs().max())

    assert error("spline") < 0.05
    assert error("spline") < 0.4 * error("platt_logits")


def test_spline_is_chosen_by_the_rows_that_its_folds_left_out(gaussians) -> None:
    problem = gaussians(400, 3, factor=2.0)
    fold = random_folds(problem.logits, problem.labels)
    assert np.bincount(fold).tolist() == [80] * 5
    targets = [(problem.labels == k).numpy().astype(float) for k in range(3)]
    every = list(scores(problem.logits))
    together = list(
        out_of_fold([(one.log_odds, t) for one, t in zip(every, targets, strict=True)], fold)
    )
    losses = []
    for place, smoothing in enumerate(SMOOTHINGS):
        rows = np.empty((400, 3))
        for k, (score, target) in enumerate(zip(every, targets, strict=True)):
            basis = SplineBasis(score.log_odds, target)
            for number in range(5):
                # By itself and from 0, as if no other smoothing had been tried.
                others, inside = fold != number, fold == number
                theta, converged = logistic_regression(
                    np.ascontiguousarray(basis.features[:, others]),
                    target[others],
                    basis.penalty(smoothing, 320),
                    basis.straight,
                )
                assert converged
                rows[inside, k] = expit(theta @ basis.features[:, inside])
                # Both objectives are within 1e-12 of the least, a square of what p may differ.
                found = expit(together[k][place, inside])
                np.testing.assert_allclose(found, rows[inside, k], rtol=0, atol=1e-5)
        own = rows[np.arange(400), problem.labels.numpy()]
        losses.append(-np.log(own / rows.sum(1)).mean())
    fitted = calibrators.fit("spline", problem.logits, problem.labels)
    assert fitted.smoothing == SMOOTHINGS[int(np.argmin(losses))]


def test_folds_do_not_depend_on_the_order_of_rows(gaussians) -> None:
    problem = gaussians(203, 3)
    order = torch.randperm(203, generator=torch.Generator().manual_seed(0))
    found = random_folds(problem.logits, problem.labels)
    again = random_folds(problem.logits[order], problem.labels[order])
    assert np.array_equal(again, found[order.numpy()])
    for k in range(3):
        sizes = np.bincount(found[problem.labels.numpy() == k], minlength=5)
        assert sizes.max() - sizes.min() <= 1


def test_spline_of_straight_data_is_platt_scaling(binary) -> None:
    logits, labels = binary(lambda s: (0.5 * s - 1).sigmoid(), 4000, seed=1)
    found = calibrators.fit("spline", logits, labels)(logits)
    expected = calibrators.fit("platt_logits", logits, labels)(logits)
    torch.testing.assert_close(found, expected, rtol=0, atol=0.02)


def test_cdf_spline_matches_probmetrics(gaussians, oracle) -> None:
    problem = gaussians(1500, 4, factor=2.0)
    p = problem.logits.softmax(1)
    confidence, predicted = p.max(1)
    correct = (predicted == problem.labels).numpy().astype(int)
    theirs = oracle.CDFSplineCalibrator()
    binary = np.stack([1 - confidence.numpy(), confidence.numpy()], axis=1)
    expected = theirs.fit(binary, correct).predict_proba(binary)[:, 1]
    fitted = calibrators.fit("cdf_spline", problem.logits, problem.labels)(problem.logits)
    found = fitted.gather(1, predicted[:, None]).squeeze(1).numpy()
    # Theirs works in single precision and lets confidences leave [0, 1].
    np.testing.assert_allclose(found, expected.clip(1 / 1502, 1 - 1 / 1502), atol=5e-4)
    # The other classes keep their proportions.
    others = torch.arange(4) != predicted[:, None]
    shares = [(q * others) / (q * others).sum(1, keepdim=True) for q in (fitted, p)]
    torch.testing.assert_close(shares[0], shares[1])


def test_cdf_spline_removes_the_planted_gap(gaussians) -> None:
    fitting, fresh = gaussians(8000, 4, factor=2.5), gaussians(8000, 4, factor=2.5, seed=1)
    predicted = fresh.logits.argmax(1, keepdim=True)
    truth = fresh.posterior.gather(1, predicted)
    corrected = calibrators.fit("cdf_spline", fitting.logits, fitting.labels)(fresh.logits)
    gap = (corrected.gather(1, predicted) - truth).mean().abs()
    assert float(gap) < 0.01
    assert float((fresh.logits.softmax(1).gather(1, predicted) - truth).mean()) > 0.05


def test_kernel_is_the_weighted_mean_over_all_samples(binary) -> None:
    logits, labels = binary(lambda s: (0.5 * s - 1).sigmoid(), 500)
    fitted = calibrators.fit("kernel", logits, labels)
    s = logits[:, 1]
    at = torch.linspace(-8, 8, 33).double()
    weights = (-0.5 * ((at[:, None] - s) / fitted.bandwidth).square()).exp()
    expected = (weights @ labels.double() + at.sigmoid()) / (weights.sum(1) + 1)
    found = fitted(torch.stack([torch.zeros_like(at), at], dim=1))[:, 1]
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-3)


def test_kernel_leaves_each_sample_out(binary) -> None:
    _, labels = binary(lambda s: (0.5 * s - 1).sigmoid(), 60)
    # On points of the grid, where nothing is rounded.
    s = np.rint(60 * np.random.default_rng(0).standard_normal(60)) * 0.05
    target = labels.numpy().astype(float)
    expected = np.zeros(len(BANDWIDTHS))
    for i in range(60):
        others = np.arange(60) != i
        weights = np.exp(-0.5 * ((s[i] - s[others]) / BANDWIDTHS[:, None]) ** 2)
        p = (weights @ target[others] + expit(s[i])) / (weights.sum(1) + 1)
        expected += np.log(p if target[i] else 1 - p)
    np.testing.assert_allclose(leave_one_out(s, target), expected, rtol=1e-9)


def test_kernel_takes_the_likeliest_bandwidth_over_all_classes(gaussians) -> None:
    problem = gaussians(300, 4, factor=2.0)
    fitted = calibrators.fit("kernel", problem.logits, problem.labels)
    likelihood = sum(
        leave_one_out(score.log_odds, (problem.labels == k).numpy().astype(float))
        for k, score in enumerate(scores(problem.logits))
    )
    assert fitted.bandwidth == BANDWIDTHS[likelihood.argmax()]


def test_kernel_helps_where_its_curve_is_steep_for_the_spread_of_the_data(gaussians) -> None:
    # 40 classes of about 75 samples: a class's log-odds spread widely, its curve is steep.
    fitting, fresh = gaussians(3000, 40, factor=0.6), gaussians(3000, 40, factor=0.6, seed=1)

    def nll(name: str) -> float:
        rows = calibrators.fit(name, fitting.logits, fitting.labels)(fresh.logits)
        return float(-rows.gather(1, fresh.labels[:, None]).log().mean())

    assert nll("kernel") < nll("identity")


def test_kernel_changes_nothing_where_there_are_no_data(binary) -> None:
    logits, labels = binary(lambda s: 0.5 + 0 * s, 300, spread=0.5)
    far = torch.tensor([[0.0, 12.0], [0.0, -12.0]]).double()
    torch.testing.assert_close(
        calibrators.fit("kernel", logits, labels)(far), far.softmax(1), rtol=0, atol=1e-4
    )
