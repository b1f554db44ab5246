"""Triangular histogram bins (Wang et al. 2016, learnable histograms) and their ECE."""

from __future__ import annotations

from torch import Tensor

from calibration.objectives.objective import OBJECTIVES, Real
from calibration.objectives.soft_bins import bin_centres, mean_absolute_gap
from calibration.objectives.top_label import top_label


def soft_memberships(confidence: Tensor, centres: Tensor, widths: Real) -> Tensor:
    """relu(1 − |confidence − centre_m| / width_m): (N,) and (M,) → (N, M).

    Piecewise linear, 1 at a centre and 0 from a width away on; differentiable in the centres
    and widths (one for all, or one each). Where neighbours' centres lie one width apart the
    memberships add up to 1 between the first and the last centre.
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
    spaced ones. Learned by minimising this very error they would hide it, so that they need an
    aim of their own, which the method ``learned_histogram`` has. Raises ``ValueError`` when
    ``bins`` is below 1.
    """
    _, confidence, correct = top_label(logits, labels)
    centres = bin_centres(bins, confidence) if centres is None else centres
    memberships = soft_memberships(confidence, centres, 1 / bins if widths is None else widths)
    # Beyond the outermost centres a single bin is left, at half its height or more; learned bins
    # may leave a gap, whose samples belong to none.
    memberships = memberships / memberships.sum(dim=-1, keepdim=True).clamp_min(1e-6)
    return mean_absolute_gap(memberships, confidence - correct)
