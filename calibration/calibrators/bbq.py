"""Bayesian binning into quantiles (Naeini, Cooper and Hauskrecht 2015)."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from scipy.special import betaln

from calibration.calibrators.calibrator import CALIBRATORS, Floats
from calibration.calibrators.histogram import StepFunction, equal_mass_edges
from calibration.calibrators.one_vs_rest import OneVsRest, Score

EQUIVALENT_SAMPLES = 2.0
NEGLIGIBLE = 1e-9


@CALIBRATORS.register("bbq")
class BayesianBinning(OneVsRest[StepFunction]):
    """Histograms of equal mass, averaged over their number of bins (Naeini et al. 2015).

    B runs from N^⅓/10 to 10·N^⅓. In every bin the frequency of the class has a Beta prior
    worth N'/B samples, N' = 2, whose mean is the centre of the bin; a histogram is weighted
    by its marginal likelihood and predicts its posterior means.
    """

    description = "Bayesian binning into quantiles, one-vs-rest (Naeini et al. 2015)"
    scaling = False
    fast = False
    version = 2

    def _fit_map(self, score: Score, target: Floats) -> StepFunction:
        order = np.argsort(score.p, kind="stable")
        ordered, ones = score.p[order], np.concatenate([[0.0], np.cumsum(target[order])])
        root = len(target) ** (1 / 3)
        numbers = range(max(1, math.floor(root / 10)), math.ceil(10 * root) + 1)
        models, evidence = _posteriors(ordered, ones, numbers)
        weights = np.exp(evidence - evidence.max())
        weights[weights < NEGLIGIBLE] = 0
        return _average(models, weights / weights.sum())

    def _apply_map(self, fitted: StepFunction, score: Score) -> Floats:
        return fitted(score.p)


def _posteriors(
    ordered: Floats, ones: Floats, numbers: Iterable[int]
) -> tuple[list[StepFunction], Floats]:
    """The posterior means of each histogram, and their log marginal likelihoods (BDeu).

    The bins of all histograms are in one array, one histogram after the other.
    """
    edges = [equal_mass_edges(ordered, bins) for bins in numbers]
    sizes = np.array([len(inner) + 1 for inner in edges])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    left, right = (np.empty(sizes.sum()) for _ in range(2))
    inside = np.concatenate(edges)
    first = np.zeros(len(left), dtype=bool)
    first[starts] = True
    last = np.roll(first, -1)
    left[first], left[~first], right[last], right[~last] = 0.0, inside, 1.0, inside
    rank = np.searchsorted(ordered, inside, side="right")
    begin, end = np.zeros(len(left), dtype=np.int64), np.full(len(left), len(ordered))
    begin[~first], end[~last] = rank, rank
    count, positive = end - begin, ones[end] - ones[begin]
    prior = np.repeat(EQUIVALENT_SAMPLES / sizes, sizes)
    # A bin may extend from 0 to a number that rounds to 0: keep both prior counts positive.
    alpha = prior * np.clip((left + right) / 2, 1e-12, 1 - 1e-12)
    beta = prior - alpha
    evidence = betaln(positive + alpha, count - positive + beta) - betaln(alpha, beta)
    means = np.split((positive + alpha) / (count + alpha + beta), starts[1:])
    models = [StepFunction(inner, mean) for inner, mean in zip(edges, means, strict=True)]
    return models, np.add.reduceat(evidence, starts)


def _average(models: list[StepFunction], weights: Floats) -> StepFunction:
    """The weighted mean of step functions, itself a step function."""
    used = [(bins, w) for bins, w in zip(models, weights, strict=True) if w > 0]
    edges = np.unique(np.concatenate([bins.edges for bins, _ in used]))
    # Every step includes its right end; the last one extends to infinity.
    ends = np.append(edges, np.inf)
    return StepFunction(edges, sum((w * bins(ends) for bins, w in used), start=np.zeros(len(ends))))
