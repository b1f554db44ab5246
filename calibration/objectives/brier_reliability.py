"""The reliability part of the Brier score's decomposition (Murphy 1973), over soft bins."""

from __future__ import annotations

from torch import Tensor

from calibration.objectives.objective import OBJECTIVES, Real
from calibration.objectives.soft_bins import bin_centres, mean_squared_gap, soft_bins
from calibration.objectives.top_label import top_label


@OBJECTIVES.register("brier_reliability")
def brier_reliability(
    logits: Tensor, labels: Tensor, *, bins: int = 15, temperature: Real = 0.01
) -> Tensor:
    """Σ_m w_m (conf_m − acc_m)² over soft bins of the top label's confidence.

    The square of ``sb_ece`` with the same hyperparameters: its gradient fades as the error
    vanishes, unlike that of a norm. Raises ``ValueError`` when ``bins`` is below 1.
    """
    _, confidence, correct = top_label(logits, labels)
    memberships = soft_bins(confidence, bin_centres(bins, confidence), temperature)
    return mean_squared_gap(memberships, confidence - correct)
