"""Dual focal loss (Tao, Dong and Xu 2023)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from calibration.hyperparameters import Uniform
from calibration.methods.focal import complement, focal_loss
from calibration.methods.loss_method import LossMethod
from calibration.methods.method import METHODS, MethodHyperparameters, Numbers
from calibration.models import Output


class DualFocalHyperparameters(MethodHyperparameters):
    """``gamma``: the focusing exponent; ``form``: the published loss or a sum of two terms.

    ``alpha1``, ``alpha2`` and ``gamma2`` belong to the form ``two_term``, whose γ1 is ``gamma``.
    """

    gamma: Annotated[float, Field(ge=0, le=20), Uniform(0.0, 5.0)] = 5.0
    form: Literal["dfl", "two_term"] = "dfl"
    alpha1: Annotated[float, Field(ge=0, le=10)] = 1.0
    alpha2: Annotated[float, Field(ge=0, le=10)] = 1.0
    gamma2: Annotated[float, Field(ge=0, le=20)] = 2.0


def dual_focal_loss(logits: Tensor, labels: Tensor, gamma: Tensor) -> Tensor:
    """−(1 − p_y + p_j)^γ log p_y per sample, p_j the largest probability below p_y.

    p_j is 0 if no probability is below p_y, and carries gradient otherwise.
    """
    log_p = logits.log_softmax(dim=-1)
    log_p_y = log_p.gather(-1, labels.unsqueeze(-1))
    below = log_p.exp().masked_fill(log_p >= log_p_y, 0.0).amax(dim=-1)
    log_p_y = log_p_y.squeeze(-1)
    return -((complement(log_p_y) + below) ** gamma) * log_p_y


def rival_focal_loss(logits: Tensor, labels: Tensor, gamma: Tensor) -> Tensor:
    """−(1 − p_s)^γ log(1 − p_s) per sample, p_s the largest probability of a wrong class."""
    log_p = logits.log_softmax(dim=-1)
    wrong = log_p.scatter(-1, labels.unsqueeze(-1), -float("inf"))
    rival = wrong.argmax(dim=-1, keepdim=True)
    # The sum of the other classes, as log(1 − p_s) is infinite as soon as p_s rounds to 1.
    log_rest = log_p.scatter(-1, rival, -float("inf")).logsumexp(dim=-1)
    return -(complement(log_p.gather(-1, rival).squeeze(-1)) ** gamma) * log_rest


@METHODS.register("dual_focal")
class DualFocal(LossMethod):
    """L = −(1 − p_y + p_j)^γ log p_y, p_j the largest probability below p_y.

    Tao, Dong and Xu 2023. ``form: two_term`` is the form in which surveys cite the loss,
    L = −α1 (1 − p_y)^γ1 log p_y − α2 (1 − p_s)^γ2 log(1 − p_s),
    p_s being the largest probability of a wrong class.
    """

    description = "focal loss that also looks at the runner-up below the true class"
    Hyperparameters = DualFocalHyperparameters

    def __init__(self, hyperparameters: DualFocalHyperparameters) -> None:
        super().__init__(hyperparameters)
        self.form = hyperparameters.form

    def loss(self, output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
        """Mean dual focal loss in the chosen form."""
        if self.form == "dfl":
            return dual_focal_loss(output.logits, labels, numbers["gamma"]).mean()
        first = focal_loss(output.logits, labels, numbers["gamma"])
        second = rival_focal_loss(output.logits, labels, numbers["gamma2"])
        return (numbers["alpha1"] * first + numbers["alpha2"] * second).mean()
