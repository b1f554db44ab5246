"""With many rows Newton's method starts from a tenth of them, and ends where it did before."""

from __future__ import annotations

import pytest
import torch

from calibration import calibrators
from calibration.calibrators import logistic


@pytest.mark.parametrize("name", ["beta", "platt_logits", "platt_probabilities", "quadratic"])
def test_the_start_does_not_decide_the_end(name: str, gaussians, monkeypatch) -> None:
    problem = gaussians(logistic.MANY + 1, 3, factor=2.0)
    order = problem.labels.argsort()  # a tenth of them must not be of one class
    logits, labels = problem.logits[order], problem.labels[order]
    found = calibrators.fit(name, logits, labels)(logits)
    monkeypatch.setattr(logistic, "MANY", 10**9)
    expected = calibrators.fit(name, logits, labels)(logits)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert not torch.equal(found, expected)


def test_a_class_that_the_tenth_does_not_hold_is_fitted_as_well(gaussians, monkeypatch) -> None:
    problem = gaussians(logistic.MANY + 1, 3, factor=2.0)
    labels = problem.labels.clamp(max=1)
    labels[[3, 14, 25]] = 2  # none of them a tenth row
    fitted = calibrators.fit("platt_logits", problem.logits, labels)
    assert fitted.converged
    monkeypatch.setattr(logistic, "MANY", 10**9)
    expected = calibrators.fit("platt_logits", problem.logits, labels)(problem.logits)
    torch.testing.assert_close(fitted(problem.logits), expected, rtol=0, atol=1e-5)
