"""Calibration by pairwise constraints (Cheng and Vasconcelos 2022)."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from calibration.hyperparameters import LogUniform
from calibration.methods.loss_method import LossMethod
from calibration.methods.method import METHODS, MethodHyperparameters, Numbers
from calibration.models import Output


class PairwiseConstraintsHyperparameters(MethodHyperparameters):
    """``discrimination``: weight of label against wrong class; ``exclusion``: of wrong pairs."""

    discrimination: Annotated[float, Field(ge=0, le=1000), LogUniform(0.01, 10.0)] = 1.0
    exclusion: Annotated[float, Field(ge=0, le=1000), LogUniform(0.01, 10.0)] = 1.0


def discrimination_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """BDC: mean over samples and wrong classes j of −log(p_y / (p_y + p_j)), 0-dim.

    p_y / (p_y + p_j) = σ(z_y − z_j) is the binary problem "label or class j".
    """
    gap = logits.gather(1, labels[:, None]) - logits
    # The label against itself gives log 2, which is subtracted.
    return ((F.softplus(-gap)).sum(dim=1) - math.log(2)).mean() / (logits.shape[1] - 1)


def exclusion_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """BEC: mean over samples and pairs j < k of wrong classes of −½ log σ(d) − ½ log σ(−d).

    d = z_j − z_k: the sample is neither, so that neither may be preferred. At least log 2,
    reached where all wrong classes are equally likely; 0 for two classes, which have no such
    pair. O(N·K²).
    """
    classes = logits.shape[1]
    if classes < 3:
        return logits.sum() * 0
    wrong = F.one_hot(labels, classes) == 0
    total = logits.new_zeros(())
    for shift in range(1, classes // 2 + 1):
        pairs = wrong & wrong.roll(shift, dims=1)
        d = logits - logits.roll(shift, dims=1)
        losses = (F.softplus(d) + F.softplus(-d)) / 2
        both = torch.where(pairs, losses, torch.zeros_like(losses)).sum()
        # A shift by half of the classes covers every pair twice, any other shift once.
        total = total + (both if 2 * shift == classes else 2 * both)
    return total / (len(logits) * (classes - 1) * (classes - 2))


@METHODS.register("pairwise_constraints")
class PairwiseConstraints(LossMethod):
    """L = cross-entropy + λ₁·BDC + λ₂·BEC (CPC, Cheng and Vasconcelos 2022).

    A K-class network is calibrated if its K(K−1)/2 binary problems are. The pairs that contain
    the label are trained to discriminate (``discrimination_loss``), the others, about which the
    sample says nothing, to be even (``exclusion_loss``). Both are means over pairs, so that λ
    means the same for any K; code in circulation has half of our BEC.
    """

    description = "cross-entropy + binary discrimination and exclusion constraints (CPC)"
    Hyperparameters = PairwiseConstraintsHyperparameters

    def loss(self, output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
        """The cross-entropy and both constraints."""
        logits = output.logits
        return (
            F.cross_entropy(logits, labels)
            + numbers["discrimination"] * discrimination_loss(logits, labels)
            + numbers["exclusion"] * exclusion_loss(logits, labels)
        )
