"""Binary cross-entropy of a smooth confidence: the outer loss of BO4SC (Sanguin et al. 2024)."""

from __future__ import annotations

import torch
from torch import Tensor

from calibration.objectives.objective import OBJECTIVES, Real
from calibration.objectives.top_label import top_label

# Its inverse square, which double backward computes, is still a float32.
LEAST_DOUBT = 1e-15


@OBJECTIVES.register("confidence_bce")
def confidence_bce(logits: Tensor, labels: Tensor, *, sharpness: Real = 30.0) -> Tensor:
    """Mean of −[r log ĉ + (1 − r) log(1 − ĉ)], r = correct, ĉ = Σ_k p_k e^{a p_k} / Σ_k e^{a p_k}.

    BO4SC Eq. 12–13; ``correct`` carries no gradient. The Boltzmann confidence ĉ tends to max p as
    the ``sharpness`` a grows and to 1/K as it vanishes. A certain row has e^a/(e^a + K − 1), so a
    small a caps it: 0.88 at a = 2 and K = 2; 20–50 is reasonable.
    """
    probabilities, _, correct = top_label(logits, labels)
    doubt = _boltzmann_doubt(probabilities, sharpness)
    # ĉ ≥ 1/K, so only 1 − ĉ can vanish: when e^{-a} underflows in a saturated row.
    right = -(-doubt).log1p()
    wrong = -doubt.clamp_min(LEAST_DOUBT).log()
    return torch.where(correct > 0, right, wrong).mean()


def _boltzmann_doubt(probabilities: Tensor, sharpness: Real) -> Tensor:
    """1 − ĉ of each row (N, K) → (N,), to full relative precision.

    1 − max p is summed from the other classes: float32 rounds the difference to 0 from a logit
    gap of 18 on, and a confident error would then get a gradient thousands of times too large.
    """
    predicted = probabilities.argmax(dim=-1, keepdim=True)
    is_top = torch.arange(probabilities.shape[-1], device=probabilities.device) == predicted
    others = torch.where(is_top, 0.0, probabilities).sum(dim=-1, keepdim=True)
    weights = (sharpness * probabilities).softmax(dim=-1)
    return (weights * torch.where(is_top, others, 1 - probabilities)).sum(dim=-1)
