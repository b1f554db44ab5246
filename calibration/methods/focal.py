"""Focal loss (Lin et al. 2017; for calibration Mukhoti et al. 2020) and its fixed variant."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from calibration.hyperparameters import Uniform
from calibration.methods.loss_method import LossMethod
from calibration.methods.method import METHODS, MethodHyperparameters, Numbers
from calibration.models import Output


class FocalHyperparameters(MethodHyperparameters):
    """``gamma``: how strongly samples that are already right are discounted; 0 is standard.

    ``class_balance``: how much more samples of rare classes count; at 0 all samples of a batch
    count the same, at 1 all its classes do.
    """

    gamma: Annotated[float, Field(ge=0, le=20), Uniform(0.0, 5.0)] = 2.0
    class_balance: Annotated[float, Field(ge=0, le=1)] = 0.0


def log_probability_of_label(logits: Tensor, labels: Tensor) -> Tensor:
    """log p_y per sample."""
    return logits.log_softmax(dim=-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)


def complement(log_p: Tensor) -> Tensor:
    """1 − p as −expm1(log p), which stays accurate when p is almost 1.

    It is at least 1e-12: at 0 the slope of a power below 1 is infinite, and 0 · ∞ is NaN.
    """
    return (-log_p.expm1()).clamp_min(1e-12)


def focal_loss(logits: Tensor, labels: Tensor, gamma: Tensor) -> Tensor:
    """−(1 − p_y)^γ log p_y per sample; ``gamma`` is a scalar or one value per sample."""
    log_p = log_probability_of_label(logits, labels)
    return -(complement(log_p) ** gamma) * log_p


def flsd_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Focal loss per sample with γ = 5 where p_y < 0.2 and γ = 3 elsewhere."""
    log_p = log_probability_of_label(logits, labels).detach()
    gamma = torch.where(log_p.exp() < 0.2, torch.full_like(log_p, 5.0), torch.full_like(log_p, 3.0))
    return focal_loss(logits, labels, gamma)


def class_weights(labels: Tensor, classes: int, exponent: Tensor) -> Tensor:
    """α_i ∝ (share of the class of sample i in the batch)^−exponent, with mean 1.

    Lin et al. suggest the inverse class frequency; it is taken from the batch, so that the
    loss needs no memory.
    """
    ones = torch.ones_like(labels, dtype=exponent.dtype)
    counts = ones.new_zeros(classes).scatter_add(0, labels, ones)
    weights = counts[labels] ** -exponent
    return weights / weights.mean()


@METHODS.register("focal")
class Focal(LossMethod):
    """L = −α_y (1 − p_y)^γ log p_y; α_y = 1 unless ``class_balance`` is set.

    Lin et al. 2017; for calibration Mukhoti et al. 2020.
    """

    description = "cross-entropy discounted by (1 − p_y)^γ"
    Hyperparameters = FocalHyperparameters

    def loss(self, output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
        """Mean focal loss."""
        weights = class_weights(labels, output.logits.shape[-1], numbers["class_balance"])
        return (weights * focal_loss(output.logits, labels, numbers["gamma"])).mean()


@METHODS.register("flsd")
class Flsd(LossMethod):
    """L = −(1 − p_y)^γ(p_y) log p_y, γ = 5 where p_y < 0.2, else 3.

    FLSD-53 of Mukhoti et al. 2020, whose published code also uses 3 above 0.5. The choice of γ
    carries no gradient.
    """

    description = "focal loss with γ = 5 for p_y < 0.2 and 3 above (FLSD-53)"

    def loss(self, output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
        """Mean sample-dependent focal loss."""
        return flsd_loss(output.logits, labels).mean()
