"""Differentiable ECE (Bohdal et al. 2021, Meta-Calibration)."""

from __future__ import annotations

from torch import Tensor

from calibration.objectives.objective import OBJECTIVES, Real
from calibration.objectives.rank_accuracy import soft_accuracy
from calibration.objectives.soft_bins import bin_centres, mean_absolute_gap, soft_bins
from calibration.objectives.top_label import top_label


@OBJECTIVES.register("dece")
def dece(
    logits: Tensor,
    labels: Tensor,
    *,
    bins: int = 15,
    accuracy_temperature: Real = 100.0,
    bin_temperature: Real = 0.01,
) -> Tensor:
    """Σ_m w_m |acc_m − conf_m| over soft bins, with the soft accuracy of the true class's rank.

    Memberships softmax_m((m·conf − Σ_{l≤m} (l−1)/M) / t_b). The accuracy sharpens as
    ``accuracy_temperature`` grows, the bins as ``bin_temperature`` falls; the limit is ECE.
    Raises ``ValueError`` when ``bins`` is below 1.
    """
    probabilities, confidence, _ = top_label(logits, labels)
    centres = bin_centres(bins, confidence)
    accuracy = soft_accuracy(probabilities, labels, accuracy_temperature)
    # Completing the square turns the paper's linear scores into −(conf − a_m)²·M/(2 t_b),
    # which is the same softmax with smaller numbers to round.
    memberships = soft_bins(confidence, centres, 2 * bin_temperature / bins)
    return mean_absolute_gap(memberships, accuracy - confidence)
