"""Bayesian binning into quantiles (Naeini, Cooper and Hauskrecht 2015)."""

from __future__ import annotations

import math

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
    worth N'/B samples, N' = 2, with the middle of the bin as its mean; a histogram is weighted
    by its marginal likelihood and predicts its posterior means.
    """

    description = "Bayesian binning into quantiles, one-vs-rest (Naeini et al. 2015)"
    scaling = False
    fast = False

    def _fit_map(self, score: Score, target: Floats) -> StepFunction:
        order = np.argsort(score.p, kind="stable")
        ordered, ones = score.p[order], np.concatenate([[0.0], np.cumsum(target[order])])
        root = len(target) ** (1 / 3)
        numbers = range(max(1, math.floor(root / 10)), math.ceil(10 * root) + 1)
        models = [_posterior(ordered, ones, bins) for bins in numbers]
        evidence = np.array([likelihood for _, likelihood in models])
        weights = np.exp(evidence - evidence.max())
        weights[weights < NEGLIGIBLE] = 0
        return _average([bins for bins, _ in models], weights / weights.sum())

    def _apply_map(self, fitted: StepFunction, score: Score) -> Floats:
        return fitted(score.p)


def _posterior(ordered: Floats, ones: Floats, bins: int) -> tuple[StepFunction, float]:
    """The posterior means of one histogram and its log marginal likelihood (BDeu)."""
    edges = equal_mass_edges(ordered, bins)
    ends = np.concatenate([[0], np.searchsorted(ordered, edges, side="right"), [len(ordered)]])
    count, positive = np.diff(ends), np.diff(ones[ends])
    middle = np.convolve(np.concatenate([[0.0], edges, [1.0]]), [0.5, 0.5], mode="valid")
    # A bin may reach from 0 to a number that rounds to 0: keep both prior counts positive.
    alpha = EQUIVALENT_SAMPLES / len(count) * np.clip(middle, 1e-12, 1 - 1e-12)
    beta = EQUIVALENT_SAMPLES / len(count) - alpha
    evidence = betaln(positive + alpha, count - positive + beta) - betaln(alpha, beta)
    return StepFunction(edges, (positive + alpha) / (count + alpha + beta)), float(evidence.sum())


def _average(models: list[StepFunction], weights: Floats) -> StepFunction:
    """The weighted mean of step functions, itself a step function."""
    used = [(bins, w) for bins, w in zip(models, weights, strict=True) if w > 0]
    edges = np.unique(np.concatenate([bins.edges for bins, _ in used]))
    # Every step holds its right end; the last one reaches to infinity.
    ends = np.append(edges, np.inf)
    return StepFunction(edges, sum((w * bins(ends) for bins, w in used), start=np.zeros(len(ends))))
