from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from calibration import calibrators
from calibration.calibrators.isotonic import centred_isotonic_curve, isotonic_curve, isotonic_steps

samples = st.lists(
    st.tuples(st.integers(0, 12).map(lambda n: n / 16), st.booleans()), min_size=1, max_size=25
)


def rounded_down(p: np.ndarray) -> np.ndarray:
    return np.floor(p / 1e-6) * 1e-6


@given(samples)
@settings(max_examples=100, deadline=None)
def test_levels_are_those_of_the_max_min_formula(drawn: list[tuple[float, bool]]) -> None:
    x = np.array([a for a, _ in drawn])
    y = np.array([b for _, b in drawn], dtype=float)
    distinct = np.unique(x)
    curve = isotonic_curve(x, y)
    for i, at in enumerate(distinct):
        level = max(
            min(y[(x >= low) & (x <= high)].mean() for high in distinct[i:])
            for low in distinct[: i + 1]
        )
        assert curve(np.array([at]))[0] == pytest.approx(level, abs=1e-12)


@given(samples)
@settings(max_examples=100, deadline=None)
def test_centred_curve_rises_strictly_between_0_and_1(drawn: list[tuple[float, bool]]) -> None:
    x = np.array([a for a, _ in drawn])
    y = np.array([b for _, b in drawn], dtype=float)
    steps = isotonic_steps(x, y)
    curve = centred_isotonic_curve(x, y)
    # Through the mean of every stretch, at its level.
    np.testing.assert_allclose(curve(steps.mean), steps.level, atol=1e-12)
    inner = steps.mean[(steps.level > 0) & (steps.level < 1)]
    if len(inner) > 1:
        assert (np.diff(curve(np.linspace(inner[0], inner[-1], 50))) > 0).all()


def test_centred_curve_of_the_published_example() -> None:
    # x = 1…4 with 0.01, 0.21, 0.41, 0.34: the last two are pooled at 3.5.
    x, y = np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.01, 0.21, 0.41, 0.34])
    found = centred_isotonic_curve(x, y)(x)
    np.testing.assert_allclose(found, [0.01, 0.21, 0.32, 0.375], atol=1e-6)


def test_centred_curve_stays_level_at_0_and_1() -> None:
    x, y = np.array([0.1, 0.2, 0.3, 0.4, 0.6, 0.8]), np.array([0.0, 0, 1, 0, 1, 1])
    found = centred_isotonic_curve(x, y)(np.array([0.1, 0.2, 0.35, 0.6, 0.8]))
    np.testing.assert_allclose(found, [0, 0, 0.5, 1, 1], atol=1e-5)


@pytest.mark.parametrize("classes", [2, 5])
def test_isotonic_matches_scikit_learn(classes: int, gaussians) -> None:
    fitting, fresh = gaussians(400, classes, factor=2.0), gaussians(300, classes, seed=1)
    p, q = fitting.logits.softmax(1).numpy(), fresh.logits.softmax(1).numpy()
    expected = np.stack(
        [
            IsotonicRegression(out_of_bounds="clip")
            .fit(rounded_down(p[:, k]), (fitting.labels == k).numpy())
            .predict(q[:, k])
            for k in range(classes)
        ],
        axis=1,
    )
    if classes == 2:
        expected[:, 0] = 1 - expected[:, 1]
    expected = expected / expected.sum(1, keepdims=True)
    found = calibrators.fit("isotonic", fitting.logits, fitting.labels)(fresh.logits)
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_top_label_matches_scikit_learn(gaussians) -> None:
    fitting, fresh = gaussians(500, 4, factor=2.0), gaussians(300, 4, factor=2.0, seed=1)
    confidence, predicted = fitting.logits.softmax(1).max(1)
    correct = (predicted == fitting.labels).double()
    theirs = IsotonicRegression(out_of_bounds="clip")
    theirs.fit(rounded_down(confidence.numpy()), correct.numpy())
    fresh_confidence = fresh.logits.softmax(1).amax(1)
    fitted = calibrators.fit("isotonic_top_label", fitting.logits, fitting.labels)
    found = fitted(fresh.logits)
    np.testing.assert_allclose(found, theirs.predict(fresh_confidence), atol=1e-9)
    # On its own data isotonic regression reproduces the accuracy exactly.
    assert float(fitted(fitting.logits).mean()) == pytest.approx(float(correct.mean()), abs=1e-3)
    order = fresh_confidence.argsort()
    assert (found[order].diff() >= 0).all()


def test_probabilities_beyond_single_precision_count_as_tied() -> None:
    x = np.array([1e-12, 2e-9, 4e-7, 0.5, 1 - 1e-9, 1 - 1e-12])
    y = np.array([0.0, 1.0, 0.0, 1.0, 1.0, 0.0])
    curve = isotonic_curve(x, y)
    assert curve(np.array([0.0]))[0] == pytest.approx(1 / 3)
    assert curve(np.array([1.0]))[0] == pytest.approx(2 / 3)


def test_a_row_of_zeros_keeps_its_softmax() -> None:
    # The class at 0.6 is always right and that at 0.38 never: below 0.38 each has frequency 0.
    rows = torch.tensor([[0.6, 0.38, 0.02], [0.02, 0.6, 0.38], [0.38, 0.02, 0.6]]).double()
    fitted = calibrators.fit("isotonic", rows.log(), torch.tensor([0, 1, 2]))
    even = torch.tensor([[0.35, 0.33, 0.32]]).double()
    assert [float(curve(np.array([0.35]))[0]) for curve in fitted.maps] == [0, 0, 0]
    torch.testing.assert_close(fitted(even.log()), even)
    torch.testing.assert_close(fitted(rows.log()), torch.eye(3).double(), rtol=0, atol=1e-5)
