"""Mixup (Zhang, Cisse, Dauphin and Lopez-Paz 2018; for calibration Thulasidasan et al. 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from calibration.complexity import MethodComplexity
from calibration.hyperparameters import LogUniform
from calibration.methods.descent import Records, descend
from calibration.methods.method import (
    METHODS,
    Batch,
    Learner,
    Method,
    MethodHyperparameters,
    Numbers,
    TrainState,
)
from calibration.models import Output
from calibration.transfer import sent


class MixupHyperparameters(MethodHyperparameters):
    """``alpha``: how evenly two samples are mixed; at 1 their shares are uniform."""

    alpha: Annotated[float, Field(ge=0.05, le=100), LogUniform(0.1, 2.0)] = 1.0


def mixing_share(alpha: float, generator: torch.Generator) -> Tensor:
    """λ ~ Beta(α, α) in float64.

    From two gamma variates in float64: at α = 0.05 both often underflow in float32, and their
    ratio is NaN.
    """
    shapes = torch.full((2,), alpha, dtype=torch.float64, device=generator.device)
    first, second = torch._standard_gamma(shapes, generator=generator)
    share: Tensor = first / (first + second)
    return share


@METHODS.register("mixup")
class Mixup(Method):
    """Cross-entropy on mixtures: x̃ = λx + (1 − λ)x', L = λ·CE(x̃, y) + (1 − λ)·CE(x̃, y').

    (x', y') is the batch in another order; one λ ~ Beta(α, α) per batch, as the authors do
    (Zhang, Cisse, Dauphin and Lopez-Paz 2018; for calibration Thulasidasan et al. 2019).
    """

    description = "cross-entropy on convex mixtures of pairs of samples"
    complexity = MethodComplexity.ROWS
    Hyperparameters = MixupHyperparameters
    hyperparameters: MixupHyperparameters

    def draw(self, batches: Sequence[Batch], generator: torch.Generator) -> dict[str, Tensor]:
        """λ, and the order of the partners."""
        # Rounded to the step's own precision, on whatever device the step is computed.
        share = mixing_share(float(np.float32(self.hyperparameters.alpha)), generator)
        order = torch.randperm(len(batches[0].labels), generator=generator)
        device = batches[0].labels.device
        return {"share": sent(share, device), "order": sent(order, device)}

    def step(
        self,
        learner: Learner,
        state: TrainState,
        batch: Batch,
        numbers: Numbers,
        generator: torch.Generator,
    ) -> tuple[TrainState, Records]:
        """One optimiser step on the mixed batch."""
        drawn = batch.drawn or self.draw([batch], generator)
        share = drawn["share"].to(numbers["alpha"])
        order = drawn["order"]
        mixed = torch.lerp(batch.inputs[order], batch.inputs, share.to(batch.inputs.dtype))

        def loss(output: Output) -> tuple[Tensor, Records]:
            own = F.cross_entropy(output.logits, batch.labels)
            other = F.cross_entropy(output.logits, batch.labels[order])
            return torch.lerp(other, own, share), {}

        return descend(learner, state, mixed, numbers, loss)
