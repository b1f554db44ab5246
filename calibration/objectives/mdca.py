"""Differences of batch means: MDCA of every class, DCA of the predicted one."""

from __future__ import annotations

import torch
from torch import Tensor

from calibration.objectives.objective import OBJECTIVES, check_batch
from calibration.objectives.top_label import top_label


@OBJECTIVES.register("mdca")
def mdca(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over classes k of |mean p_k − frequency of k| in the batch (Hebbalaguppe et al. 2022).

    It is 0 for a base-rate predictor: it constrains only the mean.
    """
    check_batch(logits, labels)
    classes = torch.arange(logits.shape[-1], device=logits.device)
    frequency = (labels.unsqueeze(-1) == classes).to(logits.dtype).mean(dim=0)
    return (logits.softmax(dim=-1).mean(dim=0) - frequency).abs().mean()


@OBJECTIVES.register("dca")
def dca(logits: Tensor, labels: Tensor) -> Tensor:
    """|mean confidence − accuracy| in the batch (Liang et al. 2020)."""
    _, confidence, correct = top_label(logits, labels)
    return (confidence - correct).mean().abs()
