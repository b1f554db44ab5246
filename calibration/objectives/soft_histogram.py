"""Triangular histogram bins (Wang et al. 2016, learnable histograms) and their ECE."""

from __future__ import annotations

from torch import Tensor

from calibration.objectives.objective import OBJECTIVES, Real
from calibration.objectives.soft_bins import bin_centres, mean_absolute_gap
from calibration.objectives.top_label import top_label


def soft_memberships(confidence: Tensor, centres: Tensor, widths: Real) -> Tensor:
    """relu(1 − |confidence − centre_m| / width_m): (N,) and (M,) → (N, M).

    Piecewise linear, 1 at a centre and 0 beyond one width; differentiable in the centres and
    widths (one for all, or one each). If neighbouring centres are one width apart, the
    memberships sum to 1 between the first and the last centre.
    """
    return (1 - (confidence.unsqueeze(-1) - centres).abs() / widths).relu()


@OBJECTIVES.register("histogram_ece")
def histogram_ece(
    logits: Tensor,
    labels: Tensor,
    *,
    bins: int = 15,
    centres: Tensor | None = None,
    widths: Real | None = None,
) -> Tensor:
    """Σ_m w_m |acc_m − conf_m| over triangular bins, hard accuracy.

    ``centres`` (M,) and ``widths`` (M,) may be learned; without them there are ``bins`` equally
    spaced ones. Learned by minimising this error they would only hide it, so they need their own
    objective, as in the method ``learned_histogram``. Raises ``ValueError`` when ``bins`` is
    below 1.
    """
    _, confidence, correct = top_label(logits, labels)
    centres = bin_centres(bins, confidence) if centres is None else centres
    memberships = soft_memberships(confidence, centres, 1 / bins if widths is None else widths)
    # Beyond the outermost centres only one bin remains, at half its height or more; learned bins
    # may leave a gap, whose samples belong to none.
    memberships = memberships / memberships.sum(dim=-1, keepdim=True).clamp_min(1e-6)
    return mean_absolute_gap(memberships, confidence - correct)
