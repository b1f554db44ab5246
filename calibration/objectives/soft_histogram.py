"""Triangular histogram bins (Wang et al. 2016, learnable histograms) and their ECE."""

from __future__ import annotations

from torch import Tensor

from calibration.objectives.objective import OBJECTIVES, Knob
from calibration.objectives.soft_bins import bin_centres, mean_absolute_gap
from calibration.objectives.top_label import top_label


def soft_memberships(confidence: Tensor, centres: Tensor, widths: Knob) -> Tensor:
    """relu(1 − |confidence − centre_m| / width_m): (N,) and (M,) → (N, M).

    Piecewise linear, 1 at a centre and 0 from a width away on; differentiable in the centres
    and widths (one for all, or one each). Where neighbours' centres lie one width apart the
    memberships add up to 1 between the first and the last centre.
    """
    return (1 - (confidence.unsqueeze(-1) - centres).abs() / widths).relu()


@OBJECTIVES.register("histogram_ece")
def histogram_ece(logits: Tensor, labels: Tensor, *, bins: int = 15) -> Tensor:
    """Σ_m w_m |acc_m − conf_m| over triangular bins on equally spaced centres, hard accuracy.

    Raises ``ValueError`` when ``bins`` is below 1.
    """
    _, confidence, correct = top_label(logits, labels)
    memberships = soft_memberships(confidence, bin_centres(bins, confidence), 1 / bins)
    # Beyond the outermost centres a single bin is left, at half its height or more.
    memberships = memberships / memberships.sum(dim=-1, keepdim=True)
    return mean_absolute_gap(memberships, confidence - correct)
