"""Logistic regression on one score per class (Platt 1999) and its quadratic extension."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np
from scipy.special import expit

from calibration.calibrators.calibrator import CALIBRATORS, Floats
from calibration.calibrators.logistic import logistic_regression, shrunk_logistic_regression
from calibration.calibrators.one_vs_rest import OneVsRest, Score
from calibration.complexity import CalibratorComplexity


class LogisticMap(OneVsRest[Floats]):
    """σ(θ·f(score)) per class, θ with a standard normal prior around "no change"."""

    complexity = CalibratorComplexity.PER_CLASS
    scaling = True
    weighted = True
    unchanged: ClassVar[tuple[float, ...]]

    def _fit_map(self, score: Score, target: Floats) -> Floats:
        theta, converged = shrunk_logistic_regression(
            self._features(score), target, np.array(self.unchanged), score.weights
        )
        self.converged = self.converged and converged
        return theta

    def _apply_map(self, fitted: Floats, score: Score) -> Floats:
        return expit(fitted @ self._features(score))

    @abstractmethod
    def _features(self, score: Score) -> Floats:
        """The features f, (d, N)."""


def platt_features(score: Score) -> Floats:
    """Log-odds and intercept, (2, N)."""
    return np.stack([score.log_odds, np.ones_like(score.log_odds)])


@CALIBRATORS.register("platt_logits")
class PlattLogits(LogisticMap):
    """σ(a·s + b) per class, s the log-odds of the class against the rest (Platt 1999)."""

    description = "Platt scaling of the log-odds, one-vs-rest (Platt 1999)"
    fast = True
    unchanged = (1.0, 0.0)

    def _features(self, score: Score) -> Floats:
        return platt_features(score)


@CALIBRATORS.register("quadratic")
class Quadratic(LogisticMap):
    """σ(a·s + b + c·s²) per class, s the log-odds of the class against the rest.

    An extension of Platt scaling (Platt 1999) by a quadratic term.
    """

    description = "logistic regression on the log-odds and their square, one-vs-rest"
    fast = True
    unchanged = (1.0, 0.0, 0.0)

    def _features(self, score: Score) -> Floats:
        s = score.log_odds
        return np.stack([s, np.ones_like(s), np.square(s)])


@CALIBRATORS.register("platt_probabilities")
class PlattProbabilities(LogisticMap):
    """σ(a·p + b) per class, p its probability, with Platt's targets (Platt 1999).

    The targets are (N₊+1)/(N₊+2) and 1/(N₋+2) instead of 1 and 0, as in scikit-learn's
    sigmoid calibration. "No change" is not of this form, so there is no prior.
    """

    description = "Platt scaling of the probabilities, one-vs-rest (Platt 1999)"
    fast = True

    def _fit_map(self, score: Score, target: Floats) -> Floats:
        weights = score.weights
        positives = target.sum() if weights is None else weights @ target
        negatives = (len(target) if weights is None else weights.sum()) - positives
        smooth = np.where(target > 0, (positives + 1) / (positives + 2), 1 / (negatives + 2))
        theta, converged = logistic_regression(
            self._features(score), smooth, np.zeros((2, 2)), np.zeros(2), weights=weights
        )
        self.converged = self.converged and converged
        return theta

    def _features(self, score: Score) -> Floats:
        return np.stack([score.p, np.ones_like(score.p)])
