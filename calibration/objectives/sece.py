"""Smooth ECE of the Meta-Regularization paper: accuracy by kernel regression on confidence."""

from __future__ import annotations

from torch import Tensor

from calibration.objectives.objective import OBJECTIVES, Real
from calibration.objectives.rank_accuracy import soft_accuracy
from calibration.objectives.top_label import top_label


@OBJECTIVES.register("sece")
def sece(
    logits: Tensor,
    labels: Tensor,
    *,
    bandwidth: Real = 0.01,
    accuracy_temperature: Real = 100.0,
) -> Tensor:
    """Mean |SACC_i − z_i|, SACC_i = Σ_j acc_j k(z_i, z_j) / Σ_j k(z_i, z_j), z = confidence.

    Meta-Regularization Eq. 5–7 with a Gaussian kernel of the given bandwidth h, normalised
    (Nadaraya–Watson): as printed, without the denominator, SACC would grow with the batch.
    h = 0.01 is the paper's; a few hundred samples need 0.05–0.1. As h vanishes, each sample
    keeps its own accuracy; a large h compares every confidence with the mean accuracy.
    Memory N².
    """
    probabilities, confidence, _ = top_label(logits, labels)
    accuracy = soft_accuracy(probabilities, labels, accuracy_temperature)
    distance = (confidence.unsqueeze(-1) - confidence) / bandwidth
    smoothed = (-distance.square() / 2).softmax(dim=-1) @ accuracy
    return (smoothed - confidence).abs().mean()
