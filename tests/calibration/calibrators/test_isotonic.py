from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, logit
from sklearn.isotonic import IsotonicRegression

from calibration import calibrators
from calibration.calibrators.isotonic import (
    POOLING_WIDTH,
    centred_isotonic_curve,
    class_frequency,
    isotonic_curve,
    isotonic_steps,
    shrunk,
)

samples = st.lists(
    st.tuples(st.integers(1, 15).map(lambda n: n / 16), st.booleans()), min_size=1, max_size=25
)


def rounded_down(p: np.ndarray) -> np.ndarray:
    return expit(np.floor(logit(p) / POOLING_WIDTH) * POOLING_WIDTH)


def drawn_steps(drawn: list[tuple[float, bool]]):
    p, y = (np.array(values, dtype=float) for values in zip(*drawn, strict=True))
    return p, y, isotonic_steps(logit(p), y)


@given(samples)
@settings(max_examples=100, deadline=None)
def test_levels_are_those_of_the_max_min_formula(drawn: list[tuple[float, bool]]) -> None:
    x, y, steps = drawn_steps(drawn)
    distinct = np.unique(x)
    curve = isotonic_curve(steps)
    for i, at in enumerate(distinct):
        level = max(
            min(y[(x >= low) & (x <= high)].mean() for high in distinct[i:])
            for low in distinct[: i + 1]
        )
        # At its rounded place: beyond a stretch the curve begins to rise.
        assert curve(rounded_down(np.array([at])))[0] == pytest.approx(level, abs=1e-12)


@given(samples)
@settings(max_examples=100, deadline=None)
def test_centred_curve_rises_strictly_between_0_and_1(drawn: list[tuple[float, bool]]) -> None:
    _, _, steps = drawn_steps(drawn)
    curve = centred_isotonic_curve(steps)
    # Through the mean of every stretch, at its level.
    np.testing.assert_allclose(curve(steps.mean), steps.level, atol=1e-12)
    inner = steps.mean[(steps.level > 0) & (steps.level < 1)]
    if len(inner) > 1:
        assert (np.diff(curve(np.linspace(inner[0], inner[-1], 50))) > 0).all()


def test_centred_curve_of_the_published_example() -> None:
    # x = 1…4 with 0.01, 0.21, 0.41, 0.34: the last two are pooled at 3.5.
    x, y = np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.01, 0.21, 0.41, 0.34])
    found = centred_isotonic_curve(isotonic_steps(logit(x), y))(x)
    np.testing.assert_allclose(found, [0.01, 0.21, 0.32, 0.375], atol=1e-6)


def test_centred_curve_stays_level_at_0_and_1() -> None:
    x, y = np.array([0.1, 0.2, 0.3, 0.4, 0.6, 0.8]), np.array([0.0, 0, 1, 0, 1, 1])
    curve = centred_isotonic_curve(isotonic_steps(logit(x), y))
    found = curve(np.array([0.1, 0.2, 0.35, 0.6, 0.8]))
    np.testing.assert_allclose(found, [0, 0, 0.5, 1, 1], atol=1e-5)


@given(samples, st.floats(0.01, 0.99))
@settings(max_examples=100, deadline=None)
def test_shrunk_levels_rise_strictly_inside_0_and_1(
    drawn: list[tuple[float, bool]], frequency: float
) -> None:
    _, y, plain = drawn_steps(drawn)
    steps = shrunk(plain, frequency)
    assert (np.diff(steps.level) > 0).all()
    assert steps.level.min() >= 2 * frequency / (len(y) + 2)
    assert steps.level.max() <= (len(y) + 2 * frequency) / (len(y) + 2)
    # Nothing is lost in pooling, and no place is left.
    assert steps.count.sum() == len(y)
    assert steps.total.sum() == y.sum()
    assert (steps.first[0], steps.last[-1]) == (plain.first[0], plain.last[-1])
    # Each stretch weighs n + 2 and adds 2π: pooling keeps the sum of all.
    moved = (plain.count + 2) @ ((plain.total + 2 * frequency) / (plain.count + 2))
    parts = np.searchsorted(steps.last, plain.last)
    weight = np.bincount(parts, weights=plain.count + 2)
    assert weight @ steps.level == pytest.approx(moved, rel=1e-12)


def test_shrunk_levels_in_closed_form() -> None:
    # Levels 0/3, 1/2, 2/2; with π = 0.1: 0.2/5, 1.2/4, 2.2/4. In order: nothing is pooled.
    p = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])
    plain = isotonic_steps(logit(p), np.array([0.0, 0, 0, 1, 0, 1, 1]))
    np.testing.assert_allclose(shrunk(plain, 0.1).level, [0.04, 0.3, 0.55], rtol=1e-12)
    # Levels 3/4 and 1/1; with π = 0.01: 3.02/6 and 1.02/3, which are out of order: 4.04/9.
    plain = isotonic_steps(logit(p[:5]), np.array([1.0, 1, 1, 0, 1]))
    assert len(plain.level) == 2
    found = shrunk(plain, 0.01)
    np.testing.assert_allclose(found.level, [4.04 / 9], rtol=1e-12)
    assert (found.count, found.total) == (5, 4)


@given(samples, st.floats(0.05, 0.95))
@settings(max_examples=25, deadline=None)
def test_shrunk_levels_minimise_the_penalised_squares(
    drawn: list[tuple[float, bool]], frequency: float
) -> None:
    _, _, plain = drawn_steps(drawn)
    n, mean = plain.count, plain.total / plain.count

    def value(levels: np.ndarray) -> float:
        return float(n @ (levels - mean) ** 2 + 2 * ((levels - frequency) ** 2).sum())

    # Levels as a first one and rises that are not negative.
    found = minimize(
        lambda rises: value(np.cumsum(rises)),
        np.full(len(n), 0.1),
        bounds=[(None, None)] + [(0, None)] * (len(n) - 1),
        options={"ftol": 1e-15, "gtol": 1e-10},
    )
    steps = shrunk(plain, frequency)
    levels = steps.level[np.searchsorted(steps.last, plain.last)]
    assert value(levels) <= found.fun + 1e-9
    # The curvature is at least 3 everywhere: close in value is close in levels.
    np.testing.assert_allclose(levels, np.cumsum(found.x), atol=1e-3)


def test_class_frequencies_are_inside_0_and_1_and_sum_to_1() -> None:
    labels = np.array([0, 0, 0, 2])
    shares = [class_frequency((labels == k).astype(float), 4) for k in range(4)]
    assert shares == [4 / 8, 1 / 8, 2 / 8, 1 / 8]


@pytest.mark.parametrize("classes", [2, 5])
def test_isotonic_is_scikit_learns_shrunk(classes: int, gaussians) -> None:
    fitting, fresh = gaussians(400, classes, factor=2.0), gaussians(300, classes, seed=1)
    p, q = fitting.logits.softmax(1).numpy(), fresh.logits.softmax(1).numpy()
    columns = []
    for k in range(classes):
        target = (fitting.labels == k).numpy().astype(float)
        x = rounded_down(p[:, k])
        level = IsotonicRegression().fit(x, target).predict(x)
        blocks = np.unique(level)
        n = np.array([(level == value).sum() for value in blocks])
        k_of = np.array([target[level == value].sum() for value in blocks])
        raw = (k_of + 2 * (target.sum() + 1) / (400 + classes)) / (n + 2)
        again = IsotonicRegression().fit(np.arange(len(n)), raw, sample_weight=n + 2)
        moved = again.predict(np.searchsorted(blocks, level))
        theirs = IsotonicRegression(out_of_bounds="clip").fit(x, moved)
        columns.append(theirs.predict(q[:, k]))
    expected = np.stack(columns, axis=1)
    if classes == 2:
        expected[:, 0] = 1 - expected[:, 1]
    expected = expected / expected.sum(1, keepdims=True)
    found = calibrators.fit("isotonic", fitting.logits, fitting.labels)(fresh.logits)
    # scikit-learn takes x closer than single precision for equal.
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("name", ["isotonic", "centred_isotonic"])
@given(
    rows=st.integers(1, 12),
    classes=st.integers(2, 6),
    scale=st.sampled_from([0.0, 1.0, 30.0, 1000.0]),
    seed=st.integers(0, 2**20),
)
@settings(max_examples=60, deadline=None)
def test_nll_is_finite_on_any_new_data(
    name: str, rows: int, classes: int, scale: float, seed: int
) -> None:
    # So few rows leave classes out.
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(rows, classes, generator=generator)
    labels = torch.randint(classes, (rows,), generator=generator)
    fitted = calibrators.fit(name, logits, labels)
    new = torch.cat([logits, scale * torch.randn(50, classes, generator=generator)])
    found = fitted(new)
    assert (found > 0).all()
    assert (found < 1).all()
    assert torch.isfinite(found.log()).all()
    # Each class's map is non-decreasing.
    at = np.linspace(0, 1, 101)
    assert all((np.diff(curve(at)) >= 0).all() for curve in fitted.maps)


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


def test_log_odds_of_float32_logits_are_off_by_half_the_pooling_width() -> None:
    generator = torch.Generator().manual_seed(0)
    exact = 64 * torch.rand(20_000, 5, generator=generator, dtype=torch.float64) - 32
    exact[:, 1] = exact[:, 0] - 0.1 * torch.rand(20_000, generator=generator)  # two that compete

    def log_odds(z: torch.Tensor) -> torch.Tensor:
        return z[:, 0] - z[:, 1:].logsumexp(1)

    error = (log_odds(exact.float().double()) - log_odds(exact)).abs().max()
    # float64's own error is 2⁻²⁹ of that.
    assert POOLING_WIDTH / 8 < float(error) <= POOLING_WIDTH / 2 + 1e-12


def test_log_odds_that_single_precision_cannot_tell_apart_are_pooled() -> None:
    s = 3 + POOLING_WIDTH * np.array([0.1, 0.5, 0.9, 1.5])
    steps = isotonic_steps(s, np.array([0.0, 1.0, 0.0, 1.0]))
    np.testing.assert_allclose(steps.level, [1 / 3, 1])
    # Tiny probabilities are known as precisely, and kept apart.
    far = isotonic_steps(np.array([-30.0, -25.0, -20.0]), np.array([0.0, 0.5, 1.0]))
    assert len(far.level) == 3
    # Log-odds whose probability is 1 in float64 are one place.
    assert len(isotonic_steps(np.array([50.0, 60.0]), np.array([0.0, 1.0])).level) == 1
