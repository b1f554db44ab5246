"""Label smoothing whose strength is learned for calibration (after Bohdal et al. 2021)."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from calibration.methods.label_smoothing import smoothed_cross_entropy
from calibration.methods.meta import MetaMethod, Trained
from calibration.methods.method import METHODS, Numbers
from calibration.methods.outer_losses import OuterDeceHyperparameters, Weight, dece_loss
from calibration.models import Output

LARGEST_EPSILON = 0.5


class MetaLabelSmoothingHyperparameters(OuterDeceHyperparameters):
    """``initial_epsilon``: the initial ε; ``per_class``: one ε per class instead of one for
    all. The outer loss is CE + 0.5 · DECE, as in Meta-Calibration.
    """

    initial_epsilon: Annotated[float, Field(gt=0, lt=LARGEST_EPSILON)] = 0.05
    per_class: bool = False
    nll_weight: Weight = 1.0
    dece_weight: Weight = 0.5


@METHODS.register("meta_label_smoothing")
class MetaLabelSmoothing(MetaMethod):
    """L = −Σ_k ((1 − ε)[k = y] + ε/K) log p_k with ε = ½ σ(u) learned on held-out data."""

    description = "label smoothing with ε (or one per class) learned on DECE"
    Hyperparameters = MetaLabelSmoothingHyperparameters
    version = 2
    hyperparameters: MetaLabelSmoothingHyperparameters

    @property
    def watched(self) -> tuple[str, float]:
        """The mean ε."""
        return "epsilon_mean", self.hyperparameters.initial_epsilon

    def initial_outer(self, features: int, classes: int) -> Tensor:
        """The value of u that gives the initial ε."""
        share = self.hyperparameters.initial_epsilon / LARGEST_EPSILON
        count = classes if self.hyperparameters.per_class else 1
        return torch.full((count,), math.log(share / (1 - share)))

    def inner_loss(self, trained: Trained, outer: Tensor, numbers: Numbers) -> Tensor:
        """Mean cross-entropy against smoothed targets."""
        epsilon = LARGEST_EPSILON * outer.sigmoid()
        own = epsilon[trained.labels] if self.hyperparameters.per_class else epsilon[0]
        return smoothed_cross_entropy(trained.output.logits, trained.labels, own).mean()

    def outer_loss(self, output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
        """Cross-entropy and DECE."""
        return dece_loss(output, labels, numbers)

    def records(self, output: Output, outer: Tensor, numbers: Numbers) -> dict[str, Tensor]:
        """The mean ε."""
        return {"epsilon_mean": LARGEST_EPSILON * outer.detach().sigmoid().mean()}
