"""Margin-based label smoothing (Liu, Ben Ayed, Galdran and Dolz 2022)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from calibration.hyperparameters import LogUniform, Uniform
from calibration.methods.loss_method import LossMethod
from calibration.methods.method import METHODS, MethodHyperparameters, Numbers
from calibration.models import Output


class MarginLabelSmoothingHyperparameters(MethodHyperparameters):
    """``margin``: the logit gap without a penalty; ``alpha``: the penalty on what exceeds it."""

    margin: Annotated[float, Field(ge=0, le=100), Uniform(2.0, 15.0)] = 10.0
    alpha: Annotated[float, Field(ge=0, le=10), LogUniform(0.01, 1.0)] = 0.1


def margin_penalty(logits: Tensor, margin: Tensor) -> Tensor:
    """The mean over samples and classes k of max(0, max_j l_j − l_k − margin)."""
    gaps = logits.amax(dim=-1, keepdim=True) - logits
    return F.relu(gaps - margin).mean()


@METHODS.register("margin_label_smoothing")
class MarginLabelSmoothing(LossMethod):
    """L = −log p_y + α · mean_k max(0, max_j l_j − l_k − margin).

    Liu, Ben Ayed, Galdran and Dolz 2022; l are the logits.
    """

    description = "cross-entropy with logit gaps above a margin penalised (MbLS)"
    Hyperparameters = MarginLabelSmoothingHyperparameters

    def loss(self, output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
        """Mean cross-entropy and the weighted margin penalty."""
        penalty = margin_penalty(output.logits, numbers["margin"])
        return F.cross_entropy(output.logits, labels) + numbers["alpha"] * penalty
