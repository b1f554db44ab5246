"""Label smoothing (Szegedy et al. 2016; Müller et al. 2019)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from calibration.hyperparameters import Uniform
from calibration.methods.loss_method import LossMethod
from calibration.methods.method import METHODS, MethodHyperparameters, Numbers
from calibration.models import Output


class LabelSmoothingHyperparameters(MethodHyperparameters):
    """``epsilon``: the share of every target spread evenly over all K classes."""

    epsilon: Annotated[float, Field(ge=0, lt=1), Uniform(0.0, 0.3)] = 0.05


def smoothed_cross_entropy(logits: Tensor, labels: Tensor, epsilon: Tensor) -> Tensor:
    """Cross-entropy per sample against targets (1 − ε)·one-hot + ε/K.

    ``epsilon`` is a tensor, a scalar or one value per sample; torch's own
    ``label_smoothing`` takes only a Python number, which could not be batched over trials.
    """
    log_p = logits.log_softmax(dim=-1)
    on_target = log_p.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return -((1 - epsilon) * on_target + epsilon * log_p.mean(dim=-1))


@METHODS.register("label_smoothing")
class LabelSmoothing(LossMethod):
    """L = −Σ_k ((1 − ε)[k = y] + ε/K) log p_k.

    Szegedy et al. 2016; for calibration Müller et al. 2019.
    """

    description = "cross-entropy against targets softened by ε/K"
    Hyperparameters = LabelSmoothingHyperparameters

    def loss(self, output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
        """Mean cross-entropy against smoothed targets."""
        return smoothed_cross_entropy(output.logits, labels, numbers["epsilon"]).mean()
