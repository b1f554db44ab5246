"""An accuracy loss plus β times a calibration objective, under one of four schedules.

``joint`` minimises base + β·objective from the start (Kumar et al. 2018 and most others).
``switch`` minimises only the base for the share ``switch_at`` of all epochs, then as ``joint``.
``interleaved`` takes, after every step on the base loss of a training batch, one step on
    β·objective of a held-out batch. Both use one optimiser and its moments; weight decay and
    BatchNorm's statistics belong to the first.
``gradient_balanced`` computes both gradients separately, scales the objective's to the length of
    the base's times ``gradient_share`` (which replaces β: the objective's own scale is lost),
    removes its component against the base's (like PCGrad, Yu et al. 2020) and takes one step
    along their sum.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from calibration.complexity import MethodComplexity
from calibration.methods.base_losses import BaseLossHyperparameters, base_loss
from calibration.methods.descent import Records, descend, moved, slope
from calibration.methods.method import Batch, Learner, Method, Numbers, TrainState
from calibration.models import Output
from calibration.objectives import OBJECTIVES

_Schedule = Literal["joint", "switch", "interleaved", "gradient_balanced"]


class RegularisedHyperparameters(BaseLossHyperparameters):
    """``beta``: the objective's weight; ``schedule``: when and how it enters.

    ``switch_at``: the share of all epochs after which ``switch`` adds the objective.
    ``gradient_share``: the length of the objective's gradient in ``gradient_balanced``, as a
    share of the base loss's.
    """

    beta: Annotated[float, Field(ge=0, le=1000)]
    # Not searched unless a spec says so: no schedule uses all of the hyperparameters here, and
    # interleaved training has fewer rows.
    schedule: _Schedule = "joint"
    switch_at: Annotated[float, Field(ge=0, le=1)] = 0.5
    gradient_share: Annotated[float, Field(ge=0, le=100)] = 0.5


class Regularised(Method):
    """L = base + β · objective: the family's shared training step.

    A member names its ``objective``; its hyperparameters beyond ``RegularisedHyperparameters``
    are the objective's hyperparameters, under the same names.
    """

    Hyperparameters: ClassVar[type[RegularisedHyperparameters]]
    objective: ClassVar[str]
    complexity = MethodComplexity.BATCH

    def __init__(self, hyperparameters: RegularisedHyperparameters) -> None:
        super().__init__(hyperparameters)
        self.base = hyperparameters.base
        self.schedule: _Schedule = hyperparameters.schedule
        self.objective_options = {
            name: value
            for name, value in hyperparameters.model_dump().items()
            if name not in RegularisedHyperparameters.model_fields
        }

    @property
    def needs_held_out(self) -> bool:
        """Only ``interleaved`` measures calibration on held-out data."""
        return self.schedule == "interleaved"

    def base_loss(self, logits: Tensor, labels: Tensor, numbers: Numbers) -> Tensor:
        """The mean accuracy loss of a batch."""
        return base_loss(self.base, logits, labels, numbers)

    def calibration_error(self, logits: Tensor, labels: Tensor, numbers: Numbers) -> Tensor:
        """The objective of a batch, with this member's hyperparameters."""
        options = {n: numbers.get(n, value) for n, value in self.objective_options.items()}
        return OBJECTIVES[self.objective](logits, labels, **options)

    def step(
        self,
        learner: Learner,
        state: TrainState,
        batch: Batch,
        numbers: Numbers,
        generator: torch.Generator,
    ) -> tuple[TrainState, Records]:
        """One update by the schedule; ``loss`` is that of the first optimiser step."""
        if self.schedule == "interleaved":
            return self._interleaved(learner, state, batch, numbers)
        if self.schedule == "gradient_balanced":
            return self._balanced(learner, state, batch, numbers)
        weight = numbers["beta"]
        if self.schedule == "switch":
            begun = numbers["progress"] >= numbers["switch_at"]
            weight = torch.where(begun, weight, torch.zeros_like(weight))

        def loss(output: Output) -> tuple[Tensor, Records]:
            base = self.base_loss(output.logits, batch.labels, numbers)
            error = self.calibration_error(output.logits, batch.labels, numbers)
            return base + weight * error, {"base": base, "objective": error}

        return descend(learner, state, batch.inputs, numbers, loss)

    def _interleaved(
        self, learner: Learner, state: TrainState, batch: Batch, numbers: Numbers
    ) -> tuple[TrainState, Records]:
        held_out = batch.held_out
        assert held_out is not None, "needs_held_out asks the trainer for it"

        def base(output: Output) -> tuple[Tensor, Records]:
            return self.base_loss(output.logits, batch.labels, numbers), {}

        def error(output: Output) -> tuple[Tensor, Records]:
            value = self.calibration_error(output.logits, held_out.labels, numbers)
            return numbers["beta"] * value, {"objective": value}

        state, records = descend(learner, state, batch.inputs, numbers, base)
        undecayed = numbers | {"weight_decay": torch.zeros_like(numbers["weight_decay"])}
        after, judged = descend(learner, state, held_out.inputs, undecayed, error)
        records |= {"base": records["loss"], "objective": judged["objective"]}
        return after._replace(buffers=state.buffers), records

    def _balanced(
        self, learner: Learner, state: TrainState, batch: Batch, numbers: Numbers
    ) -> tuple[TrainState, Records]:
        def base(output: Output) -> tuple[Tensor, Records]:
            return self.base_loss(output.logits, batch.labels, numbers), {}

        def error(output: Output) -> tuple[Tensor, Records]:
            return self.calibration_error(output.logits, batch.labels, numbers), {}

        devices = [state.parameters.device] if state.parameters.is_cuda else []
        with torch.random.fork_rng(devices):  # the same dropout for both gradients
            down, records, buffers = slope(learner, state, batch.inputs, base)
        aside, judged, _ = slope(learner, state, batch.inputs, error)
        along = balanced(down, aside, numbers["gradient_share"])
        state = moved(learner, state, along, numbers)
        records |= {"base": records["loss"], "objective": judged["loss"]}
        return state._replace(buffers=buffers), records


def balanced(base: Tensor, other: Tensor, share: Tensor) -> Tensor:
    """base + o, where o is ``other`` at ``share`` times the length of ``base``.

    If o points against ``base``, that component is removed, so that the sum never has a
    smaller component along ``base`` than ``base`` itself.
    """
    tiny = torch.finfo(base.dtype).tiny
    scaled = other * (share * base.norm() / other.norm().clamp_min(1e-12))
    overlap = (scaled @ base) / (base @ base).clamp_min(tiny)
    total: Tensor = base + scaled - overlap.clamp_max(0) * base
    return total
