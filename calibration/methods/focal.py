"""Focal loss (Lin et al. 2017; for calibration Mukhoti et al. 2020)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from calibration.hyperparameters import Uniform
from calibration.methods.loss_method import LossMethod
from calibration.methods.method import METHODS, MethodHyperparameters, Numbers
from calibration.models import Output


class FocalHyperparameters(MethodHyperparameters):
    """``gamma``: how strongly samples that are already right are discounted; 0 is standard."""

    gamma: Annotated[float, Field(ge=0, le=20), Uniform(0.0, 5.0)] = 2.0


def focal_loss(logits: Tensor, labels: Tensor, gamma: Tensor) -> Tensor:
    """−(1 − p_y)^γ log p_y per sample; ``gamma`` is a scalar or one value per sample.

    1 − p_y is computed as −expm1(log p_y), which keeps its digits when p_y is almost 1,
    and kept above 1e-12: at 0 the power's slope is infinite for γ < 1, and 0 · ∞ is NaN.
    """
    log_p = logits.log_softmax(dim=-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    miss = (-log_p.expm1()).clamp_min(1e-12)
    return -(miss**gamma) * log_p


@METHODS.register("focal")
class Focal(LossMethod):
    """L = −(1 − p_y)^γ log p_y."""

    description = "cross-entropy discounted by (1 − p_y)^γ"
    Hyperparameters = FocalHyperparameters

    def loss(self, output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
        """Mean focal loss."""
        return focal_loss(output.logits, labels, numbers["gamma"]).mean()
