"""Entropy of the predictions, and the penalty on its absence (Pereyra et al. 2017)."""

from __future__ import annotations

from torch import Tensor

from calibration.objectives.objective import OBJECTIVES, check_batch


def entropy(logits: Tensor) -> Tensor:
    """−Σ_k p_k log p_k of each row, in nats, (N, K) → (N,)."""
    log_p = logits.log_softmax(dim=-1)
    return -(log_p.exp() * log_p).sum(dim=-1)


@OBJECTIVES.register("confidence_penalty")
def confidence_penalty(logits: Tensor, labels: Tensor) -> Tensor:
    """Minus the mean entropy: minimising it raises entropy. The labels are not used."""
    check_batch(logits, labels)
    return -entropy(logits).mean()
