"""Soft equal-width bins of confidence, and calibration errors summed over any soft bins."""

from __future__ import annotations

import torch
from torch import Tensor

from calibration.objectives.objective import Real

LEAST_MASS = 1e-12


def bin_centres(bins: int, like: Tensor) -> Tensor:
    """The centres (m − ½)/M, m = 1…M, of equal-width bins of [0, 1].

    Raises ``ValueError`` when ``bins`` is below 1.
    """
    if bins < 1:
        raise ValueError(f"bins must be a whole number of at least 1, found {bins!r}")
    return (torch.arange(bins, dtype=like.dtype, device=like.device) + 0.5) / bins


def soft_bins(confidence: Tensor, centres: Tensor, temperature: Real) -> Tensor:
    """Memberships (N, M): softmax over m of −(confidence − a_m)²/T, a_m the M bins' centres.

    As T → 0 each sample belongs only to the bin of the nearest centre (Karandikar et al. 2021).
    """
    distance = confidence.unsqueeze(-1) - centres
    return (-distance.square() / temperature).softmax(dim=-1)


def mean_absolute_gap(memberships: Tensor, gap: Tensor) -> Tensor:
    """Σ_m w_m |gap_m| with w_m = Σ_i u_im / N and gap_m the mean gap in bin m.

    w_m cancels the mean's denominator, so empty bins are no special case: Σ_m |Σ_i u_im gap_i| / N.
    """
    return (gap @ memberships).abs().sum() / gap.shape[0]


def mean_squared_gap(memberships: Tensor, gap: Tensor) -> Tensor:
    """Σ_m w_m gap_m² with w_m = Σ_i u_im / N and gap_m the mean gap in bin m."""
    total = gap @ memberships
    # |total| ≤ mass: a bin whose mass underflows contributes 0 rather than 0/0.
    mass = memberships.sum(dim=0).clamp_min(LEAST_MASS)
    return (total / mass * total).sum() / gap.shape[0]
