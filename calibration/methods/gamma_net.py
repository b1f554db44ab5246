"""γ-Net: one focal-loss exponent per sample, predicted by a meta-network.

"Towards Unbiased Calibration using Meta-Regularization", Eq. 3–4. The meta-network sees
the penultimate features without a gradient, is trained through the look-ahead by an outer
loss on held-out data (cross-entropy, DECE or SECE), and is not used at inference.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from calibration.hyperparameters import LogUniform, When
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

LARGEST_GAMMA = 20.0
"""γ's smooth bound in the form ``rate``: the largest value allowed for ``focal``."""


class GammaHyperparameters(MetaHyperparameters):
    """γ starts at 1 in both forms of γ-Net.

    ``parametrisation: rate`` learns V = W/τ, so that τ cancels, and ``outer_lr`` is a rate of γ:
    the first step moves the mean γ by about that much, whatever the width of the features.
    ``attention_share`` is how much of it the attention matrix A may contribute. A smooth bound
    keeps γ below 20.

    ``parametrisation: paper`` is literally Eq. 4, without a bound: one Adam of rate
    ``weight_lr`` for A and W. A step moves γ by about weight_lr · ‖x̃‖₁ / ``tau``: at the
    paper's τ = 0.01 and 512 features, a rate of 1e-3 would move it by 2.
    """

    parametrisation: Literal["rate", "paper"] = "rate"
    outer_lr: Annotated[
        float, Field(gt=0, le=1), When("parametrisation", "rate", LogUniform(1e-3, 0.1))
    ] = 0.03
    attention_share: Annotated[float, Field(ge=0, le=1)] = 0.1
    tau: Annotated[
        float, Field(gt=0, le=100), When("parametrisation", "paper", LogUniform(0.01, 1.0))
    ] = 0.01
    weight_lr: Annotated[
        float, Field(gt=0, le=1), When("parametrisation", "paper", LogUniform(1e-6, 1e-4))
    ] = 1e-5


class GammaDeceHyperparameters(GammaHyperparameters, OuterDeceHyperparameters):
    """γ-Net's hyperparameters and DECE's."""


class GammaSeceHyperparameters(GammaHyperparameters, OuterSeceHyperparameters):
    """γ-Net's hyperparameters and SECE's."""


def gamma_net(features: Tensor, outer: Tensor, classes: int, tau: Tensor) -> Tensor:
    """γ = |x̃ W| / τ with x̃ = softmax(x A) Aᵀ: one exponent per row of ``features`` (N, d).

    ``outer`` holds A (d × K) and W (d), flat.
    """
    width = features.shape[1]
    gamma: Tensor = (_attended(features, outer, classes) @ outer[-width:]).abs() / tau
    return gamma


def bounded(gamma: Tensor) -> Tensor:
    """γ / √(1 + (γ/20)²): approximately γ while it is small, below 20, with a slope never 0."""
    return gamma / (1 + (gamma / LARGEST_GAMMA).square()).sqrt()


def _attended(features: Tensor, outer: Tensor, classes: int) -> Tensor:
    """x̃ = softmax(x A) Aᵀ (N, d)."""
    width = features.shape[1]
    attention = outer[: width * classes].view(width, classes)
    attended: Tensor = (features @ attention).softmax(dim=-1) @ attention.T
    return attended


class GammaMethod(MetaMethod):
    """L = −(1 − p_y)^γ(x) log p_y with γ(x) from γ-Net."""

    version = 2
    hyperparameters: GammaHyperparameters

    @property
    def watched(self) -> tuple[str, float]:
        """γ's mean starts at 1."""
        return "gamma_mean", 1.0

    @property
    def rate_name(self) -> str:
        """The rate of γ or, in the paper's form, of A and W."""
        return "weight_lr" if self.hyperparameters.parametrisation == "paper" else "outer_lr"

    def initial_outer(self, features: int, classes: int) -> Tensor:
        """Heads spread around one direction, and W along it: γ starts equal, or almost.

        This is what the paper's Fig. 3 shows: γ near 1 for all samples, with little spread. If
        W were drawn independently of the heads, γ would grow severalfold as soon as the features
        sharpen the attention, before anything is learned. In the form ``rate`` the direction is
        that of the first unit: x̃ is then 1 there for every sample, so that the first entry of
        V is the level of γ, and the others distinguish samples.
        """
        spread = torch.randn(features, classes) / features**0.5
        if self.hyperparameters.parametrisation == "paper":
            direction = torch.randn(features) / features**0.5
            return torch.cat([(direction[:, None] + spread).flatten(), direction])
        level = F.one_hot(torch.tensor(0), features).to(spread)
        # Centred, they cancel while the attention is even: the first step moves only the level.
        apart = spread[1:] - spread[1:].mean(dim=1, keepdim=True)
        heads = torch.cat([torch.ones(1, classes), apart])
        return torch.cat([heads.flatten(), level])

    def start(self, outer: Tensor, output: Output, numbers: Numbers) -> tuple[Tensor, Tensor]:
        """Scale W so that γ is 1 on average over the first batch.

        In the form ``rate`` the gains divide a step by its possible effect on γ, since Adam's first
        step moves every entry equally far: the level of V has 1 − ``attention_share``, the entries
        of A have ``attention_share``, and the other entries of V one over the mean ‖·‖₁ of the
        heads without their first entry.
        """
        width, classes = output.features.shape[1], output.logits.shape[1]
        heads, last = outer[:-width], F.normalize(outer[-width:], dim=0)
        attended = _attended(output.features, outer, classes)
        mean = (attended @ last).abs().mean().clamp_min(1e-12)
        if self.hyperparameters.parametrisation == "paper":
            return torch.cat([heads, last * numbers["tau"] / mean]), torch.ones_like(outer)
        last = last / (mean * (1 - LARGEST_GAMMA**-2) ** 0.5)  # bounded, it is 1
        apart = heads.view(width, classes)[1:].abs().sum(dim=0).mean().clamp_min(1e-12)
        of_heads = numbers["attention_share"].expand_as(heads)
        of_last = torch.where(last > 0, 1 - numbers["attention_share"], 1 / apart)
        return torch.cat([heads, last]), torch.cat([of_heads, of_last])

    def inner_loss(self, trained: Trained, outer: Tensor, numbers: Numbers) -> Tensor:
        """The mean focal loss with every sample's own γ."""
        gamma = self.gamma(trained.output, outer, numbers)
        return focal_loss(trained.output.logits, trained.labels, gamma).mean()

    def records(self, output: Output, outer: Tensor, numbers: Numbers) -> dict[str, Tensor]:
        """γ's mean and standard deviation over the batch."""
        gamma = self.gamma(output, outer, numbers).detach()
        return {"gamma_mean": gamma.mean(), "gamma_std": gamma.std(unbiased=False)}

    def describe(self, state: TrainState, validation: Seen, numbers: Numbers) -> dict[str, Tensor]:
        """γ's mean and standard deviation over validation data."""
        return self.records(validation.output, state.method["outer"], numbers)

    def gamma(self, output: Output, outer: Tensor, numbers: Numbers) -> Tensor:
        """γ of every row (N,), a function of the outer variables."""
        features, classes = output.features.detach(), output.logits.shape[1]
        if self.hyperparameters.parametrisation == "paper":
            return gamma_net(features, outer, classes, numbers["tau"])
        return bounded(gamma_net(features, outer, classes, torch.ones_like(numbers["tau"])))


@METHODS.register("fl_gamma")
class FocalGamma(GammaMethod):
    """γ-Net judged by held-out cross-entropy: the paper's ablation without a calibration loss.

    L = −(1 − p_y)^γ log p_y, γ = |x̃ W| / τ, x̃ = softmax(x A) Aᵀ, x the penultimate features
    ("Towards Unbiased Calibration using Meta-Regularization", Eq. 3–4).
    """

    description = "focal loss with sample-wise γ from γ-Net, learned on cross-entropy"
    Hyperparameters = GammaHyperparameters

    def outer_loss(self, output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
        """Mean cross-entropy."""
        return F.cross_entropy(output.logits, labels)


@METHODS.register("fl_gamma_dece")
class FocalGammaDece(GammaMethod):
    """γ-Net judged by DECE (Bohdal et al. 2021) on held-out data.

    L = −(1 − p_y)^γ log p_y, γ = |x̃ W| / τ, x̃ = softmax(x A) Aᵀ, x the penultimate features
    ("Towards Unbiased Calibration using Meta-Regularization", Eq. 3–4).
    """

    description = "focal loss with sample-wise γ from γ-Net, learned on DECE"
    Hyperparameters = GammaDeceHyperparameters

    def outer_loss(self, output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
        """DECE, with cross-entropy beside it if asked for."""
        return dece_loss(output, labels, numbers)


@METHODS.register("fl_gamma_sece")
class FocalGammaSece(GammaMethod):
    """γ-Net judged by SECE on held-out data: Meta-Regularization itself.

    L = −(1 − p_y)^γ log p_y, γ = |x̃ W| / τ, x̃ = softmax(x A) Aᵀ, x the penultimate features
    ("Towards Unbiased Calibration using Meta-Regularization", Eq. 3–4).
    """

    description = "focal loss with sample-wise γ from γ-Net, learned on SECE"
    Hyperparameters = GammaSeceHyperparameters

    def outer_loss(self, output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
        """SECE, with cross-entropy beside it if asked for."""
        return sece_loss(output, labels, numbers)
