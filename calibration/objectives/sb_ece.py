"""Soft-binned ECE (Karandikar et al. 2021)."""

from __future__ import annotations

from torch import Tensor

from calibration.objectives.objective import OBJECTIVES, Real
from calibration.objectives.soft_bins import bin_centres, mean_squared_gap, soft_bins
from calibration.objectives.square_root import bounded_sqrt
from calibration.objectives.top_label import top_label


@OBJECTIVES.register("sb_ece")
def sb_ece(logits: Tensor, labels: Tensor, *, bins: int = 15, temperature: Real = 0.01) -> Tensor:
    """√(Σ_m w_m (conf_m − acc_m)²) over soft bins, with the hard accuracy.

    Memberships softmax_m(−(conf − a_m)²/T), a_m the bins' centres; the limit as T → 0 is the
    L2 norm's ECE over equal-width bins. Raises ``ValueError`` when ``bins`` is below 1.
    """
    _, confidence, correct = top_label(logits, labels)
    memberships = soft_bins(confidence, bin_centres(bins, confidence), temperature)
    return bounded_sqrt(mean_squared_gap(memberships, confidence - correct))
