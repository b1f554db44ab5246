"""The figure of learned sample weights."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PathCollection

from calibration import plots


@pytest.fixture
def history() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    weights = np.clip(1 - rng.random((6, 50)).cumsum(0) / 6, 0, 1)
    return np.arange(10, 70, 10), weights, rng.random(50) < 0.3, rng.normal(size=(50, 2))


def test_samples_have_their_lines_and_their_places(history: tuple[np.ndarray, ...]) -> None:
    epochs, weights, wrong, points = history
    figure = plots.sample_weights(epochs, weights, wrong, points, title="weights")
    left, right = figure.axes[:2]
    right_lines, wrong_lines = (c for c in left.collections if isinstance(c, LineCollection))
    assert len(wrong_lines.get_segments()) == wrong.sum()
    assert len(right_lines.get_segments()) == (~wrong).sum()
    first_wrong = wrong_lines.get_segments()[0]
    np.testing.assert_allclose(first_wrong[:, 1], weights[:, np.flatnonzero(wrong)[0]])
    (drawn,) = (c for c in right.collections if isinstance(c, PathCollection))
    np.testing.assert_allclose(drawn.get_array(), weights[-1])
    np.testing.assert_allclose(drawn.get_offsets(), points)


def test_data_that_is_no_plane_gets_a_histogram(history: tuple[np.ndarray, ...]) -> None:
    epochs, weights, wrong, _ = history
    figure = plots.sample_weights(epochs, weights, wrong)
    bars = figure.axes[1].patches
    assert sum(bar.get_height() for bar in bars) == 50


@pytest.mark.parametrize("change", ["epochs", "wrong", "points"])
def test_shapes_that_do_not_fit_are_refused(change: str, history: tuple[np.ndarray, ...]) -> None:
    given = dict(zip(("epochs", "weights", "wrong", "points"), history, strict=True))
    given[change] = given[change][:-1]
    with pytest.raises(ValueError, match="shape"):
        plots.sample_weights(**given)
