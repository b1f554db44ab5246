"""γ-Net: a focal-loss exponent for every sample, predicted by a meta-network.

"Towards Unbiased Calibration using Meta-Regularization", Eq. 3–4. The meta-network sees
the penultimate features without a gradient, is trained through the look-ahead by an outer
loss on held-out data (cross-entropy, DECE or SECE), and is gone at inference.
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from calibration.hyperparameters import LogUniform
from calibration.methods.focal import focal_loss
from calibration.methods.meta import MetaHyperparameters, MetaMethod, Trained
from calibration.methods.method import METHODS, Numbers, Seen, TrainState
from calibration.methods.outer_losses import (
    OuterDeceHyperparameters,
    OuterSeceHyperparameters,
    dece_loss,
    sece_loss,
)
from calibration.models import Output


class GammaHyperparameters(MetaHyperparameters):
    """``tau``: γ-Net's temperature. γ starts at 1 on average whatever it is (the last layer is
    scaled to that on the first batch); from then on a small τ makes the meta step's gain large:
    0.01 is the paper's, over 100,000 steps; over a thousand it lets γ run away.
    """

    tau: Annotated[float, Field(gt=0, le=100), LogUniform(0.01, 1.0)] = 0.1


class GammaDeceHyperparameters(GammaHyperparameters, OuterDeceHyperparameters):
    """γ-Net's temperature and DECE's hyperparameters."""


class GammaSeceHyperparameters(GammaHyperparameters, OuterSeceHyperparameters):
    """γ-Net's temperature and SECE's hyperparameters."""


def gamma_net(features: Tensor, outer: Tensor, classes: int, tau: Tensor) -> Tensor:
    """γ = |x̃ W| / τ with x̃ = softmax(x A) Aᵀ: one exponent per row of ``features`` (N, d).

    ``outer`` holds A (d × K) and W (d), flat.
    """
    width = features.shape[1]
    attention = outer[: width * classes].view(width, classes)
    last = outer[width * classes :]
    attended = (features @ attention).softmax(dim=-1) @ attention.T
    gamma: Tensor = (attended @ last).abs() / tau
    return gamma


class GammaMethod(MetaMethod):
    """L = −(1 − p_y)^γ(x) log p_y with γ(x) from γ-Net."""

    def initial_outer(self, features: int, classes: int) -> Tensor:
        """Heads spread around one direction, and W along it: γ starts almost equal.

        That is what the paper's Fig. 3 shows: γ near 1 for all samples, its spread small. Were
        W drawn apart from the heads, γ would grow several times over as soon as the features
        sharpen the attention, before anything is learned.
        """
        direction = torch.randn(features) / features**0.5
        spread = torch.randn(features, classes) / features**0.5
        return torch.cat([(direction[:, None] + spread).flatten(), direction])

    def start(self, outer: Tensor, output: Output, numbers: Numbers) -> Tensor:
        """Scale W so that γ is 1 on average over the first batch."""
        split = outer.numel() - output.features.shape[1]
        unscaled = torch.cat([outer[:split], F.normalize(outer[split:], dim=0)])
        mean = self._gamma(output, unscaled, torch.ones_like(numbers["tau"])).mean()
        scale = numbers["tau"] / mean.clamp_min(1e-12)
        return torch.cat([unscaled[:split], unscaled[split:] * scale])

    def inner_loss(self, trained: Trained, outer: Tensor, numbers: Numbers) -> Tensor:
        """The mean focal loss with every sample's own γ."""
        gamma = self._gamma(trained.output, outer, numbers["tau"])
        return focal_loss(trained.output.logits, trained.labels, gamma).mean()

    def records(self, output: Output, outer: Tensor, numbers: Numbers) -> dict[str, Tensor]:
        """γ's mean and standard deviation over the batch."""
        gamma = self._gamma(output, outer, numbers["tau"]).detach()
        return {"gamma_mean": gamma.mean(), "gamma_std": gamma.std(unbiased=False)}

    def describe(self, state: TrainState, validation: Seen, numbers: Numbers) -> dict[str, Tensor]:
        """γ's mean and standard deviation over validation data."""
        return self.records(validation.output, state.method["outer"], numbers)

    def _gamma(self, output: Output, outer: Tensor, tau: Tensor) -> Tensor:
        return gamma_net(output.features.detach(), outer, output.logits.shape[1], tau)


@METHODS.register("fl_gamma")
class FocalGamma(GammaMethod):
    """γ-Net judged by held-out cross-entropy: the paper's ablation without a calibration loss."""

    description = "focal loss with sample-wise γ from γ-Net, learned on cross-entropy"
    Hyperparameters = GammaHyperparameters

    def outer_loss(self, output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
        """Mean cross-entropy."""
        return F.cross_entropy(output.logits, labels)


@METHODS.register("fl_gamma_dece")
class FocalGammaDece(GammaMethod):
    """γ-Net judged by DECE on held-out data."""

    description = "focal loss with sample-wise γ from γ-Net, learned on DECE"
    Hyperparameters = GammaDeceHyperparameters

    def outer_loss(self, output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
        """DECE, with cross-entropy beside it if asked for."""
        return dece_loss(output, labels, numbers)


@METHODS.register("fl_gamma_sece")
class FocalGammaSece(GammaMethod):
    """γ-Net judged by SECE on held-out data: Meta-Regularization itself."""

    description = "focal loss with sample-wise γ from γ-Net, learned on SECE"
    Hyperparameters = GammaSeceHyperparameters

    def outer_loss(self, output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
        """SECE, with cross-entropy beside it if asked for."""
        return sece_loss(output, labels, numbers)
