"""A smoothing spline of the log-odds (after Lucena 2018)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit, log_expit
from torch import Tensor

from calibration.calibrators.calibrator import CALIBRATORS, Floats
from calibration.calibrators.logistic import logistic_regression, logistic_regressions
from calibration.calibrators.natural_spline import NaturalSplines
from calibration.calibrators.one_vs_rest import OneVsRest, Score, scores, targets
from calibration.complexity import CalibratorComplexity

_KNOTS = 10
_FOLDS = 5
AT_ONCE = 2**22
SMOOTHINGS = (1e-4, 1e-6, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12)
"""From the stiffest, effectively a straight line, to the most flexible."""


@dataclass(frozen=True)
class SplineMap:
    """A natural spline of the log-odds, given by its values at the knots."""

    knots: Floats
    values: Floats


@CALIBRATORS.register("spline")
class Spline(OneVsRest[SplineMap]):
    """σ(a·s + b + f(s)) per class, f a natural cubic spline of the log-odds s.

    f has 10 knots, at even quantiles with equal weight on the class and the rest. Mean NLL +
    λ ∫ f″² is minimised, a and b with the prior of ``platt_logits``. λ is chosen from seven
    values between 1e-12 and 1e-4 (s in units of its range), one for all classes, by the NLL of
    whole rows in 5-fold cross-validation.
    """

    description = "smoothing spline of the log-odds, one-vs-rest (after Lucena 2018)"
    complexity = CalibratorComplexity.PIECES
    scaling = True
    fast = False
    version = 3

    smoothing: float

    def _choose(self, logits: Tensor, labels: Tensor) -> None:
        samples, classes = logits.shape
        self.smoothing = SMOOTHINGS[0]
        if samples < _FOLDS:
            return
        fold = random_folds(logits, labels)
        log_total = np.full((len(SMOOTHINGS), samples), -np.inf)
        log_true = np.zeros((len(SMOOTHINGS), samples))
        pairs = list(zip(scores(logits), targets(labels, classes), strict=True))
        every = out_of_fold([(score.log_odds, target) for score, target in pairs], fold)
        for log_odds, (_, target) in zip(every, pairs, strict=True):
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
        theta, converged = logistic_regression(
            basis.features, target, basis.penalty(self.smoothing), basis.straight
        )
        self.converged = self.converged and converged
        return SplineMap(basis.splines.knots, basis.curves @ theta)

    def _apply_map(self, fitted: SplineMap, score: Score) -> Floats:
        return expit(NaturalSplines(fitted.knots)(score.log_odds) @ fitted.values)


class SplineBasis:
    """The splines of one class, as features (d, N) of a logistic regression.

    They are straight lines, then curves of unit roughness: the penalty is diagonal.
    """

    def __init__(self, s: Floats, target: Floats) -> None:
        self.splines = NaturalSplines(balanced_quantiles(s, target, _KNOTS))
        self.curves = self.splines.by_roughness()
        self.features: Floats = np.ascontiguousarray(self.curves.T @ self.splines(s).T)

    @property
    def straight(self) -> Floats:
        """The weights of the identity map."""
        weights: Floats = np.eye(len(self.features))[0]
        return weights

    def penalty(self, smoothing: float, samples: float | None = None) -> Floats:
        """λ on the curves; on the lines a prior worth one of ``samples``, by default of all N."""
        size = len(self.features)
        prior = 1 / (samples or self.features.shape[1])
        return np.diag([prior] * 2 + [2 * smoothing] * (size - 2))


def out_of_fold(
    classes: Sequence[tuple[Floats, Floats]], fold: NDArray[np.int64]
) -> Iterator[Floats]:
    """New log-odds (smoothings, N) of each class, by splines fitted without the sample's fold.

    Takes the log-odds and the target (N) of each class. The folds of classes with equally many
    splines are fitted together.
    """
    bases = [SplineBasis(*one) for one in classes]
    inside = fold == np.arange(_FOLDS)[:, None]
    most = max(1, AT_ONCE // (_FOLDS * _KNOTS * len(fold)))
    place = 0
    while place < len(bases):
        together = [bases[place]]
        for basis in bases[place + 1 : place + most]:
            if len(basis.features) != len(together[0].features):
                break
            together.append(basis)
        target = np.stack([target for _, target in classes[place : place + len(together)]])
        yield from _out_of_fold(together, target, inside)
        place += len(together)


def _out_of_fold(
    bases: Sequence[SplineBasis], target: Floats, inside: NDArray[np.bool_]
) -> Iterator[Floats]:
    stacked = np.stack([basis.features for basis in bases])
    features, targets_ = (np.repeat(part, _FOLDS, axis=0) for part in (stacked, target))
    others = np.tile(~inside, (len(bases), 1)).astype(np.float64)
    samples = others.shape[1] * (_FOLDS - 1) / _FOLDS
    found, theta = [], None
    for smoothing in SMOOTHINGS:
        # The solution for the stiffer spline is nearby.
        theta, _ = logistic_regressions(
            features,
            targets_,
            bases[0].penalty(smoothing, samples),
            bases[0].straight,
            weights=others,
            start=theta,
        )
        # A sample belongs to one fold: its other four of the five log-odds are masked.
        log_odds = (theta[:, None, :] @ features)[:, 0].reshape(len(bases), _FOLDS, -1)
        found.append(np.where(inside, log_odds, 0).sum(1))
    return iter(np.stack(found, axis=1))


def random_folds(logits: Tensor, labels: Tensor) -> NDArray[np.int64]:
    """A random fold for every row, with every class spread evenly.

    The draw is always the same, from the rows sorted by label and by the probability of
    the label: their original order does not matter.
    """
    of_label = torch.log_softmax(logits, 1).gather(1, labels[:, None]).squeeze(1)
    y = labels.numpy()
    drawn = np.random.default_rng(0).permutation(np.lexsort((of_label.numpy(), y)))
    fold = np.empty(len(y), dtype=np.int64)
    fold[drawn[np.argsort(y[drawn], kind="stable")]] = np.arange(len(y)) % _FOLDS
    return fold


def balanced_quantiles(s: Floats, target: Floats, number: int) -> Floats:
    """At most ``number`` and at least 2 ascending quantiles, with equal weight on both classes."""
    order = np.argsort(s)
    positives = target.sum()
    weight = np.where(target > 0, 1 / max(positives, 1), 1 / max(len(s) - positives, 1))[order]
    share = (np.cumsum(weight) - weight / 2) / weight.sum()
    at = np.linspace(0, 1, number)
    knots: Floats = np.unique(s[order][np.searchsorted(share, at[1:-1]).clip(0, len(s) - 1)])
    knots = np.unique(np.concatenate([[s.min()], knots, [s.max()]]))
    # Knots closer together than this would make the spline's equations singular.
    apart = np.concatenate([[True], np.diff(knots) > 1e-6 * (1 + knots[-1] - knots[0])])
    knots = knots[apart]
    return knots if len(knots) > 1 else knots[0] + np.array([-1.0, 1.0])
