"""Kolmogorov–Smirnov calibration error of a spline through the cumulative gap."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline
from torch import Tensor

from calibration.objectives.objective import OBJECTIVES, Real
from calibration.objectives.top_label import top_label

# Points between two knots at which the spline is compared with 0.
POINTS_PER_PIECE = 16


@OBJECTIVES.register("spline_ks")
def spline_ks(logits: Tensor, labels: Tensor, *, knots: int = 6, sharpness: Real = 100.0) -> Tensor:
    """(1/s) log mean_t cosh(s S(t)), S the natural cubic spline nearest to the cumulative gap.

    With the samples sorted by confidence, G(t) = Σ_{i ≤ tN} (conf_i − correct_i) / N is the
    difference of the cumulative confidence and the cumulative accuracy at the fraction t of the
    samples, linear between them. S has ``knots`` equally spaced knots in [0, 1] (6 in Gupta
    et al. 2021) and minimises ∫ (S − G)²: a linear map of the gaps, so that the gradient of the
    KS error reaches every sample and not only the one where |G| is largest. The maximum of |S|
    is smoothed as in ``soft_ks``. Raises ``ValueError`` when there are fewer than 3 knots.
    """
    _, confidence, correct = top_label(logits, labels)
    ranked, order = confidence.sort()
    gap = ranked - correct.gather(0, order)
    onto_curve = _projection(len(gap), knots, gap.dtype, gap.device)
    curve = gap_averaged_over_ties(ranked.detach(), gap) @ onto_curve
    scaled = sharpness * curve
    both_signs = torch.cat([scaled, -scaled])
    return (both_signs.logsumexp(dim=0) - math.log(len(both_signs))) / sharpness


def gap_averaged_over_ties(ranked: Tensor, gap: Tensor) -> Tensor:
    """The gaps (N,) of ascending confidences; those of equal confidence share their mean."""
    start = torch.searchsorted(ranked, ranked)
    end = torch.searchsorted(ranked, ranked, right=True)
    total = torch.cat([torch.zeros_like(gap[:1]), gap.cumsum(dim=0)])
    mean = (total.gather(0, end) - total.gather(0, start)) / (end - start)
    # An untied gap is kept exactly: a difference of two sums would be rounded.
    return torch.where(end - start == 1, gap, mean)


@lru_cache(maxsize=64)
def projection(samples: int, knots: int) -> Tensor:
    """The matrix (N, points) from the gaps in order of confidence to the spline S.

    S = Σ_m c_m φ_m with the splines φ_m that are 1 at one knot, c = A⁻¹ b, A_mn = ∫ φ_m φ_n and
    b_m = ∫ φ_m G = Σ_i gap_i ∫_{(i−1)/N}^{i/N} ∫_s^1 φ_m(t) dt ds.
    """
    basis = _basis(knots)
    edges = np.arange(samples + 1) / samples
    inner = basis.splines.antiderivative(2)(edges)
    moments = basis.splines.antiderivative()(1.0) / samples - np.diff(inner, axis=0)
    weights = np.linalg.solve(basis.gram, moments.T)
    points = np.linspace(0, 1, POINTS_PER_PIECE * (knots - 1) + 1)
    return torch.from_numpy((basis.splines(points) @ weights).T.copy())


@lru_cache(maxsize=64)
def _projection(samples: int, knots: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return projection(samples, knots).to(dtype=dtype, device=device)


class _Basis(NamedTuple):
    """Natural cubic splines, one for each knot, and their Gram matrix."""

    splines: CubicSpline
    gram: NDArray[np.float64]


def _basis(knots: int) -> _Basis:
    if knots < 3:
        raise ValueError(f"knots must be a whole number of at least 3, found {knots!r}")
    at = np.linspace(0, 1, knots)
    splines = CubicSpline(at, np.eye(knots), bc_type="natural")
    # Four Gauss points integrate products of cubics exactly.
    nodes, weights = np.polynomial.legendre.leggauss(4)
    width = at[1] - at[0]
    values = splines((at[:-1, None] + width * (nodes + 1) / 2).ravel())
    gram = values.T @ (values * np.tile(weights * width / 2, knots - 1)[:, None])
    return _Basis(splines, gram)
