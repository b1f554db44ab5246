"""ECE over histogram bins whose centres and widths are learned during training."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from calibration.gradients import gradient
from calibration.hyperparameters import LogUniform
from calibration.methods.descent import Records
from calibration.methods.method import METHODS, Batch, Learner, Numbers, TrainState
from calibration.methods.regularised import Regularised, RegularisedHyperparameters
from calibration.methods.side_variables import adam_step, side_variable
from calibration.objectives import OBJECTIVES, soft_memberships
from calibration.objectives.soft_bins import bin_centres

WIDTHS = (1e-3, 2.0)
# How far an outermost bin extends beyond the end of [0, 1], and the density outside all bins.
BEYOND, NOWHERE = 1.25, 1e-6


class LearnedHistogramHyperparameters(RegularisedHyperparameters):
    """``bins`` triangular bins, learned at the rate ``bins_lr``."""

    beta: Annotated[float, Field(ge=0, le=1000), LogUniform(0.05, 5.0)] = 0.25
    bins: Annotated[int, Field(ge=1, le=200)] = 15
    bins_lr: Annotated[float, Field(gt=0, le=1), LogUniform(1e-3, 0.1)] = 0.01


def initial_bins(bins: int, like: Tensor) -> Tensor:
    """The centres and widths (2, M) of equally spaced bins."""
    centres = bin_centres(bins, like)
    return torch.stack([centres, torch.full_like(centres, 1 / bins)])


def density(bins: Tensor, confidence: Tensor) -> Tensor:
    """The mean of the M triangular densities relu(1 − |z − c_m|/w_m)/w_m at z: (N,)."""
    centres, widths = bins
    mean: Tensor = (soft_memberships(confidence, centres, widths) / widths).mean(dim=-1)
    return mean


def projected(bins: Tensor) -> Tensor:
    """The nearest valid bins: in ascending order within [0, 1], without gaps between them.

    A bin extends at least to its neighbours' centres, an outermost one beyond the end of [0, 1],
    so that every confidence belongs to a bin.
    """
    centres, widths = bins
    centres = centres.clamp(0, 1).cummax(dim=0).values
    between = centres.diff()
    left = torch.cat([BEYOND * centres[:1], between])
    right = torch.cat([between, BEYOND * (1 - centres[-1:])])
    widths = torch.maximum(widths.clamp(*WIDTHS), torch.maximum(left, right))
    return torch.stack([centres, widths])


@METHODS.register("learned_histogram")
class LearnedHistogram(Regularised):
    """L = base + β·ECE over triangular bins with learned centres and widths.

    The bins (after the learnable histograms of Wang et al. 2016) start as those of
    ``soft_histogram``. After each step of the network, one Adam step on the same batch, in
    evaluation mode, lowers −mean log density(conf): the bins, all of equal weight, learn to
    describe the confidences, narrow where there are many and wide where there are few, each
    with about equally many samples. Minimising the ECE itself, they would only hide it.
    """

    description = "base loss + β · ECE over histogram bins with learned centres and widths"
    Hyperparameters = LearnedHistogramHyperparameters
    objective = "histogram_ece"

    def __init__(self, hyperparameters: LearnedHistogramHyperparameters) -> None:
        super().__init__(hyperparameters)
        self.bins = hyperparameters.bins

    def initial(self, learner: Learner, parameters: Tensor) -> dict[str, Tensor]:
        """Equally spaced bins and their optimiser's state."""
        return side_variable("bins", initial_bins(self.bins, parameters))

    def calibration_error(self, logits: Tensor, labels: Tensor, numbers: Numbers) -> Tensor:
        """ECE over the current bins."""
        centres, widths = numbers["centres"], numbers["widths"]
        return OBJECTIVES[self.objective](logits, labels, centres=centres, widths=widths)

    def step(
        self,
        learner: Learner,
        state: TrainState,
        batch: Batch,
        numbers: Numbers,
        generator: torch.Generator,
    ) -> tuple[TrainState, Records]:
        """One step of the network with fixed bins, then one of the bins."""
        centres, widths = state.method["bins"]
        places = {"centres": centres, "widths": widths}
        state, records = super().step(learner, state, batch, numbers | places, generator)
        output, _ = learner.forward(state.parameters, state.buffers, batch.inputs, training=False)
        confidence = output.logits.detach().softmax(dim=-1).amax(dim=-1)
        method = better_bins(state.method, confidence, numbers["bins_lr"])
        return state._replace(method=method), records

    def snapshot(self, state: TrainState) -> dict[str, Tensor]:
        """The bins' centres and widths."""
        centres, widths = state.method["bins"]
        return {"centres": centres, "widths": widths}


def better_bins(
    method_state: dict[str, Tensor], confidence: Tensor, lr: Tensor
) -> dict[str, Tensor]:
    """The method's state after one step of the bins towards a batch's confidences."""

    def loss(bins: Tensor) -> tuple[Tensor, Tensor]:
        value = -(density(bins, confidence) + NOWHERE).log().mean()
        return value, value

    slope, _ = gradient(loss, method_state["bins"])
    moved = adam_step(method_state, "bins", slope, lr)
    return moved | {"bins": projected(moved["bins"])}
