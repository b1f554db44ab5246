"""Maximum mean calibration error (Kumar et al. 2018) and its weighted form."""

from __future__ import annotations

from torch import Tensor

from calibration.objectives.objective import OBJECTIVES
from calibration.objectives.square_root import bounded_sqrt
from calibration.objectives.top_label import top_label

_KERNEL_WIDTH = 0.4


@OBJECTIVES.register("mmce")
def mmce(logits: Tensor, labels: Tensor) -> Tensor:
    """Square root of the mean over all pairs of (c_i − r_i)(c_j − r_j) exp(−|r_i − r_j|/0.4).

    c = correct, r = confidence. Some published code omits the root, which changes the meaning
    of this term's weight. Memory N².
    """
    _, confidence, correct = top_label(logits, labels)
    return _kernel_norm((correct - confidence) / confidence.shape[0], confidence)


@OBJECTIVES.register("mmce_weighted")
def mmce_weighted(logits: Tensor, labels: Tensor) -> Tensor:
    """MMCE with errors and successes each divided by their own number, n₀ and n₁.

    √(Σ_{errors} r_i r_j k_ij / n₀² + Σ_{successes} (1−r_i)(1−r_j) k_ij / n₁²
    − 2 Σ_{success i, error j} (1−r_i) r_j k_ij / (n₀n₁)); 0, without gradient, in a batch
    without an error or without a success.

    This is the paper's formula. Published code divides by the counts twice, which makes the
    value about n₀ times smaller: the often quoted weights of 8–9 belong to that scale. Here
    they correspond to 8/n₀, between 0.1 and 2 for the errors in a typical batch of 128.
    """
    _, confidence, correct = top_label(logits, labels)
    successes = correct.sum()
    errors = (1 - correct).sum()
    both = (successes * errors).clamp_max(1)
    share = correct / successes.clamp_min(1) + (1 - correct) / errors.clamp_min(1)
    return _kernel_norm(both * share * (correct - confidence), confidence)


def _kernel_norm(gap: Tensor, confidence: Tensor) -> Tensor:
    """√(Σ_ij gap_i gap_j k(r_i, r_j)): the gaps' norm in the kernel's space."""
    distance = (confidence.unsqueeze(-1) - confidence).abs()
    return bounded_sqrt(gap @ (-distance / _KERNEL_WIDTH).exp() @ gap)
