"""Differentiable accuracy, by the rank of the true class."""

from __future__ import annotations

from torch import Tensor

from calibration.objectives.objective import Real


def soft_accuracy(probabilities: Tensor, labels: Tensor, temperature: Real) -> Tensor:
    """relu(2 − rank_y) per sample, rank_y = ½ + Σ_j σ(t (p_j − p_y)), (N, K) → (N,).

    All-pairs ranking of Qin et al. 2010 as used by Bohdal et al. 2021 (meta-calibration): the
    class's comparison with itself gives the other ½, so ranks are from 1 to K. Only the true
    class's rank is needed, which takes N·K memory. ``temperature`` multiplies: the larger, the
    closer to 0 or 1.
    """
    of_label = probabilities.gather(-1, labels.unsqueeze(-1))
    rank = 0.5 + (temperature * (probabilities - of_label)).sigmoid().sum(dim=-1)
    return (2 - rank).relu()
