"""AdaFocal (Ghosh, Schaaf and Gormley 2022)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from calibration.complexity import MethodComplexity
from calibration.hyperparameters import LogUniform
from calibration.methods.descent import Records, descend
from calibration.methods.focal import complement, log_probability_of_label
from calibration.methods.method import (
    METHODS,
    Batch,
    Learner,
    Method,
    MethodHyperparameters,
    Numbers,
    Seen,
    TrainState,
)
from calibration.metrics.binning import mass_ranks, mass_sums
from calibration.metrics.ranking import rank
from calibration.models import Output

GAMMA_MAX, GAMMA_MIN, SWITCH = 20.0, -2.0, 0.2


class AdaFocalHyperparameters(MethodHyperparameters):
    """``rate``: the λ of the update of γ; ``bins``: equal-mass bins of held-out confidence.

    ``initial_gamma`` is every bin's γ in the first epoch.
    """

    rate: Annotated[float, Field(ge=0, le=100), LogUniform(0.1, 10.0)] = 1.0
    bins: Annotated[int, Field(ge=1, le=100)] = 15
    initial_gamma: Annotated[float, Field(gt=0, le=GAMMA_MAX)] = 1.0


def signed_focal_loss(logits: Tensor, labels: Tensor, gamma: Tensor) -> Tensor:
    """−(1 − p_y)^γ log p_y where γ ≥ 0, inverse focal −(1 + p_y)^|γ| log p_y where γ < 0."""
    log_p = log_probability_of_label(logits, labels)
    factor = torch.where(gamma < 0, 1 + log_p.exp(), complement(log_p))
    return -(factor ** gamma.abs()) * log_p


def updated_gamma(gamma: Tensor, gap: Tensor, rate: Tensor) -> Tensor:
    """γ after an epoch with held-out ``gap`` = confidence − accuracy of each bin.

    γ·exp(λ·gap) if γ > 0 and γ·exp(−λ·gap) if γ < 0, so that over-confidence raises γ in
    either case; a γ closer to 0 than 0.2 changes its sign, to ∓0.2; clipped to [−2, 20].
    """
    side = gamma.sign()
    moved = gamma * (side * rate * gap).exp()
    moved = torch.where(moved.abs() < SWITCH, -side * SWITCH, moved)
    return moved.clamp(GAMMA_MIN, GAMMA_MAX)


def held_out_bins(seen: Seen, bins: int) -> tuple[Tensor, Tensor]:
    """The inner edges (M−1) of equal-mass bins of confidence, and the gap (M) of each bin.

    Bins are split by rank; tied confidences share their mean correctness. With fewer samples
    than bins, the empty bins have gap 0.
    """
    confidence, predicted = seen.output.logits.double().softmax(dim=-1).max(dim=-1)
    ranked = rank(confidence, predicted == seen.labels)
    starts = mass_ranks(ranked.samples, bins, confidence.device)[1:-1]
    edges = ranked.confidence[starts.clamp(max=ranked.samples - 1)]
    return edges, mass_sums(ranked, bins).gap


@METHODS.register("adafocal")
class AdaFocal(Method):
    """Focal loss with one γ per bin of confidence, adapted to held-out gaps each epoch.

    Ghosh, Schaaf and Gormley 2022.

    γ_b ← γ_b · exp(λ(conf_b − acc_b)) over equal-mass bins of the held-out data; where γ_b
    falls below 0.2, the bin switches to inverse focal loss −(1 + p_y)^|γ_b| log p_y, and back
    in the same way (``updated_gamma``). A training sample has the γ of the bin that contains its
    p_y. In the first epoch the bins have equal width, and γ is ``initial_gamma`` everywhere.
    """

    description = "focal loss, γ per confidence bin adapted to held-out over-confidence"
    complexity = MethodComplexity.HELD_OUT
    Hyperparameters = AdaFocalHyperparameters

    def __init__(self, hyperparameters: AdaFocalHyperparameters) -> None:
        super().__init__(hyperparameters)
        self.bins = hyperparameters.bins
        self.initial_gamma = hyperparameters.initial_gamma

    @property
    def needs_held_out(self) -> bool:
        """γ is adapted to gaps on data that the network was not fitted to."""
        return True

    def initial(self, learner: Learner, parameters: Tensor) -> dict[str, Tensor]:
        """Bins of equal width, with the same γ."""
        edges = torch.arange(1, self.bins, dtype=parameters.dtype, device=parameters.device)
        gamma = torch.full_like(parameters[:1], self.initial_gamma).repeat(self.bins)
        return {"gamma": gamma, "edges": edges / self.bins}

    def step(
        self,
        learner: Learner,
        state: TrainState,
        batch: Batch,
        numbers: Numbers,
        generator: torch.Generator,
    ) -> tuple[TrainState, Records]:
        """One optimiser step on the focal or inverse focal loss of each sample's bin."""

        def loss(output: Output) -> tuple[Tensor, Records]:
            log_p = log_probability_of_label(output.logits, batch.labels)
            bin_of = torch.bucketize(log_p.detach().exp(), state.method["edges"], right=True)
            gamma = state.method["gamma"][bin_of]
            losses = signed_focal_loss(output.logits, batch.labels, gamma)
            return losses.mean(), {"gamma": gamma.mean()}

        return descend(learner, state, batch.inputs, numbers, loss)

    def end_epoch(
        self, learner: Learner, state: TrainState, held_out: Callable[[], Seen], numbers: Numbers
    ) -> TrainState:
        """New bins and their γ from the held-out data."""
        edges, gap = held_out_bins(held_out(), self.bins)
        gamma = state.method["gamma"]
        method = {
            "gamma": updated_gamma(gamma, gap.to(gamma), numbers["rate"]),
            "edges": edges.to(gamma),
        }
        return state._replace(method=method)

    def snapshot(self, state: TrainState) -> dict[str, Tensor]:
        """γ of every bin."""
        return {"gamma": state.method["gamma"]}
