"""Kolmogorov–Smirnov calibration error (Gupta et al. 2021) with a smooth maximum."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from calibration.objectives.objective import OBJECTIVES, Real
from calibration.objectives.top_label import top_label


@OBJECTIVES.register("soft_ks")
def soft_ks(logits: Tensor, labels: Tensor, *, sharpness: Real = 100.0) -> Tensor:
    """(1/s) log mean_j cosh(s G(conf_j)), G(z) = Σ_{conf_i ≤ z} (conf_i − correct_i) / N.

    The log-sum-exp of the 2N numbers ±G, lowered by log(2N)/s so that 0 is perfect: between
    max|G| − log(2N)/s and max|G|, the KS error, to which it tends as the sharpness s grows.
    """
    _, confidence, correct = top_label(logits, labels)
    ranked, order = confidence.sort()
    cumulative = (ranked - correct.gather(0, order)).cumsum(dim=0) / len(order)
    # Tied confidences (saturated rows) all count at the end of their group: the sum inside it
    # would depend on the order of the rows.
    last = torch.searchsorted(ranked.detach(), ranked.detach(), right=True) - 1
    scaled = sharpness * cumulative.gather(0, last)
    both_signs = torch.cat([scaled, -scaled])
    return (both_signs.logsumexp(dim=0) - math.log(len(both_signs))) / sharpness
