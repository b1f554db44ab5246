"""Focal loss on smoothed targets: the combination that surveys of calibrated training recommend."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from calibration.hyperparameters import Uniform
from calibration.methods.focal import complement
from calibration.methods.loss_method import LossMethod
from calibration.methods.method import METHODS, MethodHyperparameters, Numbers
from calibration.models import Output


class FocalLabelSmoothingHyperparameters(MethodHyperparameters):
    """``gamma``: the focusing exponent; ``epsilon``: the share spread over all K classes."""

    gamma: Annotated[float, Field(ge=0, le=20), Uniform(0.0, 5.0)] = 2.0
    epsilon: Annotated[float, Field(ge=0, lt=1), Uniform(0.0, 0.3)] = 0.1


def smoothed_focal_loss(logits: Tensor, labels: Tensor, gamma: Tensor, epsilon: Tensor) -> Tensor:
    """−Σ_k q_k (1 − p_k)^γ log p_k per sample, q = (1 − ε)·one-hot + ε/K."""
    log_p = logits.log_softmax(dim=-1)
    terms = -(complement(log_p) ** gamma) * log_p
    on_target = terms.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return (1 - epsilon) * on_target + epsilon * terms.mean(dim=-1)


@METHODS.register("focal_label_smoothing")
class FocalLabelSmoothing(LossMethod):
    """L = −Σ_k ((1 − ε)[k = y] + ε/K) (1 − p_k)^γ log p_k.

    The focal factor of each class discounts that class's own term, so that γ = 0 is label
    smoothing (Szegedy et al. 2016) and ε = 0 is the focal loss (Lin et al. 2017).
    """

    description = "focal loss against targets softened by ε/K"
    Hyperparameters = FocalLabelSmoothingHyperparameters

    def loss(self, output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
        """Mean focal loss against smoothed targets."""
        gamma, epsilon = numbers["gamma"], numbers["epsilon"]
        return smoothed_focal_loss(output.logits, labels, gamma, epsilon).mean()
