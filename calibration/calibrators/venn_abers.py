"""Inductive Venn–Abers prediction (Vovk, Petej and Fedorova 2015)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.calibrators.calibrator import CALIBRATORS, Floats
from calibration.calibrators.one_vs_rest import OneVsRest, Score


@dataclass(frozen=True)
class VennAbersBounds:
    """p₀ and p₁ for a new sample that comes after the first i of the distinct scores."""

    distinct: Floats
    p0: Floats
    p1: Floats


@CALIBRATORS.register("venn_abers")
class VennAbers(OneVsRest[VennAbersBounds]):
    """p₁/(1 − p₀ + p₁) per class (Vovk et al. 2015).

    p₀ and p₁ are the values of isotonic regression at the new sample's score when it is
    added to the fitting data with target 0 and with target 1; the result is their
    minimax merger for NLL.
    """

    description = "inductive Venn–Abers prediction, one-vs-rest (Vovk et al. 2015)"
    scaling = False
    fast = False

    def _fit_map(self, score: Score, target: Floats) -> VennAbersBounds:
        distinct, where, count = np.unique(score.log_odds, return_inverse=True, return_counts=True)
        ones = np.bincount(where, weights=target).astype(np.int64)
        # A 0 among targets in ascending order is a 1 among their complements in descending.
        p0 = 1 - levels_with_one_added(count[::-1], (count - ones)[::-1])[::-1]
        return VennAbersBounds(distinct, p0, levels_with_one_added(count, ones))

    def _apply_map(self, fitted: VennAbersBounds, score: Score) -> Floats:
        # An added 0 is pooled with an equal score on its left, an added 1 on its right.
        p0 = fitted.p0[np.searchsorted(fitted.distinct, score.log_odds, side="right")]
        p1 = fitted.p1[np.searchsorted(fitted.distinct, score.log_odds, side="left")]
        return p1 / (1 - p0 + p1)


def levels_with_one_added(count: NDArray[np.int64], ones: NDArray[np.int64]) -> Floats:
    """Isotonic regression's value at a target 1 added after the first i of m groups.

    Groups come in ascending order of their score, with their size and number of ones.
    Isotonic regression is the slope of the greatest convex minorant of the cumulative sums
    P₀…P_m (Barlow et al. 1972). An added 1 moves all points behind it by (1, 1); the slope
    over it is that of the line which touches from below the points before and the moved points
    behind. As i grows, the line stays until P_i, now among the points before, lies below it;
    it then touches those at P_i, and the points behind never further left than previously. One
    pass is therefore enough. Integers keep every comparison exact.
    """
    x: list[int] = [0, *np.cumsum(count).tolist()]
    y: list[int] = [0, *np.cumsum(ones).tolist()]
    after = _convex_minorant_links(x, y)
    levels = np.empty(len(x))
    before = behind = 0
    while before < len(x):
        behind = max(behind, before)
        rise, run = y[behind] + 1 - y[before], x[behind] + 1 - x[before]
        while behind < len(x) - 1:
            further = after[behind]
            next_rise, next_run = y[further] + 1 - y[before], x[further] + 1 - x[before]
            if next_rise * run > rise * next_run:
                break
            behind, rise, run = further, next_rise, next_run
        i = before + 1
        while i < len(x) and (y[i] - y[before]) * run >= rise * (x[i] - x[before]):
            i += 1
        levels[before:i] = rise / run
        before = i
    return levels


def _convex_minorant_links(x: list[int], y: list[int]) -> list[int]:
    """For every point, the next corner of the convex minorant of it and the points after it."""
    after = [len(x)] * len(x)
    for i in range(len(x) - 2, -1, -1):
        j = i + 1
        while j < len(x) - 1:
            k = after[j]
            if (y[j] - y[i]) * (x[k] - x[i]) < (y[k] - y[i]) * (x[j] - x[i]):
                break
            j = k
        after[i] = j
    return after
