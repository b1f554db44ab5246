"""Meta-Calibration: unit-wise weight decay of the last layer, learned for calibration.

Bohdal et al. 2021. Every penultimate unit j has its own L2 coefficient, learned through the
look-ahead by DECE (or SECE) on held-out data.
"""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from calibration.methods.meta import MetaHyperparameters, MetaMethod, Trained
from calibration.methods.method import METHODS, Numbers
from calibration.methods.outer_losses import (
    OuterDeceHyperparameters,
    OuterSeceHyperparameters,
    Weight,
    dece_loss,
    sece_loss,
)
from calibration.models import Output


class L2Hyperparameters(MetaHyperparameters):
    """``initial_l2``: the coefficient of every unit before anything is learned."""

    initial_l2: Annotated[float, Field(gt=0, le=10)] = 1e-3


class L2DeceHyperparameters(L2Hyperparameters, OuterDeceHyperparameters):
    """The paper's outer loss is CE + 0.5 · DECE."""

    nll_weight: Weight = 1.0
    dece_weight: Weight = 0.5


class L2SeceHyperparameters(L2Hyperparameters, OuterSeceHyperparameters):
    """SECE instead of DECE, in the same mixture."""

    nll_weight: Weight = 1.0
    sece_weight: Weight = 0.5


class L2Method(MetaMethod):
    """L = −log p_y + Σ_j e^{u_j} Σ_k V_kj², V the last layer, u the outer variables."""

    version = 2
    hyperparameters: L2Hyperparameters

    @property
    def watched(self) -> tuple[str, float]:
        """The mean coefficient."""
        return "l2_mean", self.hyperparameters.initial_l2

    def initial_outer(self, features: int, classes: int) -> Tensor:
        """The logarithm of the same coefficient for every unit."""
        return torch.full((features,), math.log(self.hyperparameters.initial_l2))

    def inner_loss(self, trained: Trained, outer: Tensor, numbers: Numbers) -> Tensor:
        """Mean cross-entropy and the weighted squares of the last layer."""
        penalty = (outer.exp() * trained.head.square().sum(dim=0)).sum()
        return F.cross_entropy(trained.output.logits, trained.labels) + penalty

    def records(self, output: Output, outer: Tensor, numbers: Numbers) -> dict[str, Tensor]:
        """The mean coefficient."""
        return {"l2_mean": outer.detach().exp().mean()}


@METHODS.register("ce_dece")
class CrossEntropyDece(L2Method):
    """L = −log p_y + Σ_j e^{u_j} Σ_k V_kj², u learned on held-out CE + 0.5 · DECE.

    Meta-Calibration (Bohdal et al. 2021): V is the last layer, and u_j belongs to unit j before it.
    """

    description = "cross-entropy with unit-wise L2 on the last layer, learned on DECE"
    Hyperparameters = L2DeceHyperparameters

    def outer_loss(self, output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
        """Cross-entropy and DECE."""
        return dece_loss(output, labels, numbers)


@METHODS.register("ce_sece")
class CrossEntropySece(L2Method):
    """L = −log p_y + Σ_j e^{u_j} Σ_k V_kj², u learned on held-out CE + 0.5 · SECE.

    Meta-Calibration (Bohdal et al. 2021) with the SECE of Meta-Regularization in place of DECE.
    """

    description = "cross-entropy with unit-wise L2 on the last layer, learned on SECE"
    Hyperparameters = L2SeceHyperparameters

    def outer_loss(self, output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
        """Cross-entropy and SECE."""
        return sece_loss(output, labels, numbers)
