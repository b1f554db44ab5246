from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.isotonic import isotonic_regression

from calibration import calibrators

tied = st.integers(-6, 6).map(float)


def value_at(s: float, x: np.ndarray, y: np.ndarray, target: float) -> float:
    """Isotonic regression of the data and (s, target), read at s."""
    x, y = np.append(x, s), np.append(y, target)
    distinct, where, count = np.unique(x, return_inverse=True, return_counts=True)
    levels = isotonic_regression(np.bincount(where, weights=y) / count, sample_weight=count)
    return float(levels[distinct == s][0])


@given(
    st.lists(st.tuples(tied, st.integers(0, 1)), min_size=1, max_size=30),
    st.lists(st.integers(-14, 14).map(lambda n: n / 2), min_size=1, max_size=8),
)
@settings(max_examples=150, deadline=None)
def test_result_is_that_of_two_isotonic_fits_per_sample(drawn, fresh) -> None:
    x, y = (np.array(column, dtype=float) for column in zip(*drawn, strict=True))
    logits = torch.stack([torch.zeros(len(x)), torch.from_numpy(x)], dim=1)
    fitted = calibrators.fit("venn_abers", logits, torch.from_numpy(y).long())
    s = torch.tensor(fresh, dtype=torch.float64)
    found = fitted(torch.stack([torch.zeros_like(s), s], dim=1))[:, 1]
    for score, p in zip(fresh, found.tolist(), strict=True):
        p0, p1 = (value_at(score, x, y, target) for target in (0.0, 1.0))
        assert p == pytest.approx(p1 / (1 - p0 + p1), abs=1e-12)


def test_probabilities_never_reach_0_or_1(gaussians) -> None:
    problem = gaussians(300, 3, factor=10.0)
    result = calibrators.fit("venn_abers", problem.logits, problem.labels)(problem.logits)
    assert float(result.min()) > 0
    assert float(result.max()) < 1


def test_a_single_positive_gives_the_textbook_odds() -> None:
    # One sample of class 1 at score 0. At a higher score the added 0 shares its level with
    # it (p₀ = 1/2) and the added 1 stands alone (p₁ = 1).
    fitted = calibrators.fit("venn_abers", torch.zeros(1, 2), torch.tensor([1]))
    above = fitted(torch.tensor([[0.0, 1.0]]))[0, 1]
    assert float(above) == pytest.approx(1 / (1 - 0.5 + 1))
    # At a lower one the added 0 stands alone (p₀ = 0) and the added 1 is 1 (p₁ = 1).
    below = fitted(torch.tensor([[0.0, -1.0]]))[0, 1]
    assert float(below) == pytest.approx(1 / 2)
