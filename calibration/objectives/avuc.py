"""Soft accuracy-versus-uncertainty calibration (Karandikar et al. 2021)."""

from __future__ import annotations

import math

from torch import Tensor

from calibration.objectives.confidence_penalty import entropy
from calibration.objectives.objective import OBJECTIVES, Real
from calibration.objectives.top_label import top_label

_LEAST = 1e-6


@OBJECTIVES.register("avuc")
def avuc(
    logits: Tensor, labels: Tensor, *, threshold: Real = 0.5, temperature: Real = 0.1
) -> Tensor:
    """S-AvUC: log(1 + (n_AU + n_IC) / (n_AC + n_IU)).

    With u the entropy and h = u / log K, a sample is uncertain to the degree
    q = σ((logit h − logit κ)/T) around the threshold κ ∈ (0, 1), and
    n_AU = Σ_{right} q tanh u, n_IC = Σ_{wrong} (1−q)(1 − tanh u),
    n_AC = Σ_{right} (1−q)(1 − tanh u), n_IU = Σ_{wrong} q tanh u.
    AvUC (Krishnan & Tickoo 2020) has a step function instead of q, and multiplies each term by
    the confidence (right) or its complement (wrong).
    """
    _, _, correct = top_label(logits, labels)
    nats = entropy(logits)
    # Away from 0 and 1, where a saturated or uniform row would make the logit infinite.
    share = (nats / math.log(logits.shape[-1])).clamp(_LEAST, 1 - _LEAST)
    odds = (share * (1 - threshold)).log() - ((1 - share) * threshold).log()
    uncertain = (odds / temperature).sigmoid() * nats.tanh()
    certain = (-odds / temperature).sigmoid() * (1 - nats.tanh())
    undesired = (correct * uncertain + (1 - correct) * certain).mean()
    desired = (correct * certain + (1 - correct) * uncertain).mean()
    # All samples may be undesirable: certain and wrong, or right and uncertain.
    return (undesired / desired.clamp_min(_LEAST)).log1p()
