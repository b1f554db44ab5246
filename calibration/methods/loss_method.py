"""Methods that consist of gradient training of a loss on the network's output."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from calibration.complexity import MethodComplexity
from calibration.gradients import differentiated
from calibration.methods.descent import descend, moved, moved_together
from calibration.methods.method import Batch, Learner, Method, Numbers, TrainState
from calibration.models import Output
from calibration.steady import SteadyLoss

LossAndSlope = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Logits (N, C) or (K, N, C) and labels → the loss of each network, its gradient at the logits."""


class LossMethod(Method):
    """A method whose whole idea is ``loss``: everything else is plain training."""

    complexity = MethodComplexity.ROWS

    @abstractmethod
    def loss(self, output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
        """The mean loss of a batch as a 0-dim tensor, differentiable twice."""

    @property
    def by_hand(self) -> LossAndSlope | None:
        """``loss`` with its hand-written gradient at the logits, if there is one."""
        return None

    def step(
        self,
        learner: Learner,
        state: TrainState,
        batch: Batch,
        numbers: Numbers,
        generator: torch.Generator,
    ) -> tuple[TrainState, dict[str, Tensor]]:
        """One optimiser step along the gradient of ``loss``."""
        by_hand, dense = self.by_hand, learner.dense
        if by_hand is not None and dense is not None and not differentiated():
            made = dense.forward(state.parameters, batch.inputs)
            value, slope = by_hand(made.logits, batch.labels)
            return moved(learner, state, made.backward(slope), numbers), {"loss": value}

        def loss(output: Output) -> tuple[Tensor, dict[str, Tensor]]:
            return self.loss(output, batch.labels, numbers), {}

        return descend(learner, state, batch.inputs, numbers, loss)

    def steps_together(
        self, learner: Learner, state: TrainState, batches: Sequence[Batch], numbers: Numbers
    ) -> tuple[TrainState, dict[str, Tensor]] | None:
        """The network by batched products, and at most its loss under ``torch.vmap``."""
        own = type(self).step is not LossMethod.step or type(self).steps is not Method.steps
        if own or learner.dense is None:
            return None
        value = torch.empty(0)
        for batch in batches:
            made = learner.dense.forward(state.parameters, batch.inputs)
            if self.by_hand is not None:
                value, slope = self.by_hand(made.logits, batch.labels)
                found = made.backward(slope)
            else:
                with SteadyLoss():
                    bars, value = torch.vmap(torch.func.grad_and_value(self._loss_at))(
                        Output(made.logits, made.features), batch.labels, numbers
                    )
                found = made.backward(*bars)
            state = moved_together(learner, state, found, numbers)
        return state, {"loss": value}

    def _loss_at(self, output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
        return self.loss(output, labels, numbers)
