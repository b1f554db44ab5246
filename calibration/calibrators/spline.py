"""A smoothing spline of the log-odds (after Lucena 2018)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit, log_expit
from torch import Tensor

from calibration.calibrators.calibrator import CALIBRATORS, Floats
from calibration.calibrators.logistic import logistic_regression
from calibration.calibrators.natural_spline import NaturalSplines
from calibration.calibrators.one_vs_rest import OneVsRest, Score, scores, targets
from calibration.complexity import CalibratorComplexity

_KNOTS = 10
_FOLDS = 5
SMOOTHINGS = (1e-4, 1e-6, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12)
"""From the stiffest, in effect a straight line, to the loosest."""


@dataclass(frozen=True)
class SplineMap:
    """A natural spline of the log-odds, given by its values at the knots."""

    knots: Floats
    values: Floats


@CALIBRATORS.register("spline")
class Spline(OneVsRest[SplineMap]):
    """σ(a·s + b + f(s)) per class, f a natural cubic spline of the log-odds s.

    f has 10 knots, at even quantiles when the class and the rest weigh the same. Mean NLL +
    λ ∫ f″² is minimised, a and b with the prior of ``platt_logits``. λ is chosen of seven
    values from 1e-12 to 1e-4 (s in units of its range), one for all classes, by the NLL of
    whole rows in 5-fold cross-validation.
    """

    description = "smoothing spline of the log-odds, one-vs-rest (after Lucena 2018)"
    complexity = CalibratorComplexity.PIECES
    scaling = True
    fast = False
    version = 2

    smoothing: float

    def _choose(self, logits: Tensor, labels: Tensor) -> None:
        samples, classes = logits.shape
        self.smoothing = SMOOTHINGS[0]
        if samples < _FOLDS:
            return
        fold = random_folds(logits, labels)
        log_total = np.full((len(SMOOTHINGS), samples), -np.inf)
        log_true = np.zeros((len(SMOOTHINGS), samples))
        for score, target in zip(scores(logits), targets(labels, classes), strict=True):
            log_odds = out_of_fold(score.log_odds, target, fold)
            columns = [(log_odds, target)]
            if classes == 2:
                columns.append((-log_odds, 1 - target))
            for column, is_true in columns:
                log_p = log_expit(column)
                log_total = np.logaddexp(log_total, log_p)
                log_true += np.where(is_true > 0, log_p, 0)
        self.smoothing = SMOOTHINGS[int(np.argmax((log_true - log_total).mean(1)))]

    def _fit_map(self, score: Score, target: Floats) -> SplineMap:
        basis = SplineBasis(score.log_odds, target)
        theta, converged = basis.fit(slice(None), self.smoothing)
        self.converged = self.converged and converged
        return SplineMap(basis.splines.knots, basis.curves @ theta)

    def _apply_map(self, fitted: SplineMap, score: Score) -> Floats:
        return expit(NaturalSplines(fitted.knots)(score.log_odds) @ fitted.values)


class SplineBasis:
    """The splines of one class, and the fit of their weights.

    They are straight lines, then curves of unit roughness: the penalty is diagonal.
    """

    def __init__(self, s: Floats, target: Floats) -> None:
        self.splines = NaturalSplines(balanced_quantiles(s, target, _KNOTS))
        self.curves = self.splines.by_roughness()
        self.features: Floats = self.curves.T @ self.splines(s).T
        self.target = target

    def fit(
        self, rows: slice | NDArray[np.int64], smoothing: float, start: Floats | None = None
    ) -> tuple[Floats, bool]:
        """The weights for these rows, and whether the solver converged."""
        features, target = np.ascontiguousarray(self.features[:, rows]), self.target[rows]
        size = len(features)
        penalty = np.diag([1 / len(target)] * 2 + [2 * smoothing] * (size - 2))
        return logistic_regression(features, target, penalty, np.eye(size)[0], start=start)


def out_of_fold(s: Floats, target: Floats, fold: NDArray[np.int64]) -> Floats:
    """The new log-odds (smoothings, N) of every sample by splines fitted without its fold."""
    basis = SplineBasis(s, target)
    found = np.empty((len(SMOOTHINGS), len(s)))
    for number in range(_FOLDS):
        inside, others = np.flatnonzero(fold == number), np.flatnonzero(fold != number)
        theta: Floats | None = None
        for smoothing, row in zip(SMOOTHINGS, found, strict=True):
            # The solution for a stiffer spline is nearby.
            theta, _ = basis.fit(others, smoothing, theta)
            row[inside] = theta @ basis.features[:, inside]
    return found


def random_folds(logits: Tensor, labels: Tensor) -> NDArray[np.int64]:
    """A fold for every row, drawn at random with every class spread evenly.

    The draw is always the same, and is made of the rows sorted by label and by the
    probability of the label: their order does not matter.
    """
    of_label = torch.log_softmax(logits, 1).gather(1, labels[:, None]).squeeze(1)
    y = labels.numpy()
    drawn = np.random.default_rng(0).permutation(np.lexsort((of_label.numpy(), y)))
    fold = np.empty(len(y), dtype=np.int64)
    fold[drawn[np.argsort(y[drawn], kind="stable")]] = np.arange(len(y)) % _FOLDS
    return fold


def balanced_quantiles(s: Floats, target: Floats, number: int) -> Floats:
    """At most ``number`` and at least 2 ascending quantiles, classes weighing the same."""
    order = np.argsort(s)
    positives = target.sum()
    weight = np.where(target > 0, 1 / max(positives, 1), 1 / max(len(s) - positives, 1))[order]
    share = (np.cumsum(weight) - weight / 2) / weight.sum()
    at = np.linspace(0, 1, number)
    knots: Floats = np.unique(s[order][np.searchsorted(share, at[1:-1]).clip(0, len(s) - 1)])
    knots = np.unique(np.concatenate([[s.min()], knots, [s.max()]]))
    # Knots closer than this to their neighbour would make the spline's equations singular.
    apart = np.concatenate([[True], np.diff(knots) > 1e-6 * (1 + knots[-1] - knots[0])])
    knots = knots[apart]
    return knots if len(knots) > 1 else knots[0] + np.array([-1.0, 1.0])
