"""The accuracy losses that a calibration objective can be added to, by name."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from calibration.hyperparameters import Choice
from calibration.methods.dual_focal import dual_focal_loss
from calibration.methods.focal import flsd_loss, focal_loss
from calibration.methods.focal_label_smoothing import smoothed_focal_loss
from calibration.methods.label_smoothing import smoothed_cross_entropy
from calibration.methods.margin_label_smoothing import margin_penalty
from calibration.methods.method import MethodHyperparameters, Numbers

BaseName = Literal[
    "ce",
    "focal",
    "brier",
    "label_smoothing",
    "flsd",
    "dual_focal",
    "focal_label_smoothing",
    "margin_label_smoothing",
]
MARGIN_WEIGHT = 0.1


class BaseLossHyperparameters(MethodHyperparameters):
    """``base``: the accuracy loss; ``base_gamma`` and ``base_epsilon``: its hyperparameter, if any.

    ``base_gamma`` belongs to ``focal``, ``dual_focal`` and ``focal_label_smoothing``,
    ``base_epsilon`` to the two kinds of label smoothing, ``base_margin`` to
    ``margin_label_smoothing`` (with its usual weight of 0.1).
    """

    base: Annotated[BaseName, Choice(("ce", "focal"))] = "ce"
    base_gamma: Annotated[float, Field(ge=0, le=20)] = 2.0
    base_epsilon: Annotated[float, Field(ge=0, lt=1)] = 0.05
    base_margin: Annotated[float, Field(ge=0, le=1000)] = 10.0


def brier_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Σ_k (p_k − [k = y])² per sample."""
    p, at = logits.softmax(dim=-1), labels.unsqueeze(-1)
    return p.scatter_add(-1, at, -torch.ones_like(p[..., :1])).square().sum(dim=-1)


def base_loss(name: BaseName, logits: Tensor, labels: Tensor, numbers: Numbers) -> Tensor:
    """The mean of the named loss over the batch."""
    if name == "ce":
        return F.cross_entropy(logits, labels)
    if name == "focal":
        return focal_loss(logits, labels, numbers["base_gamma"]).mean()
    if name == "brier":
        return brier_loss(logits, labels).mean()
    if name == "label_smoothing":
        return smoothed_cross_entropy(logits, labels, numbers["base_epsilon"]).mean()
    if name == "flsd":
        return flsd_loss(logits, labels).mean()
    if name == "focal_label_smoothing":
        gamma, epsilon = numbers["base_gamma"], numbers["base_epsilon"]
        return smoothed_focal_loss(logits, labels, gamma, epsilon).mean()
    if name == "margin_label_smoothing":
        penalty = margin_penalty(logits, numbers["base_margin"])
        return F.cross_entropy(logits, labels) + MARGIN_WEIGHT * penalty
    return dual_focal_loss(logits, labels, numbers["base_gamma"]).mean()
