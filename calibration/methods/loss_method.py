"""Methods that are ordinary gradient training of a loss on the network's output."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from calibration.complexity import MethodComplexity
from calibration.methods.descent import descend
from calibration.methods.method import Batch, Learner, Method, Numbers, TrainState
from calibration.models import Output


class LossMethod(Method):
    """A method whose whole idea is ``loss``: everything else is plain training."""

    complexity = MethodComplexity.ROWS

    @abstractmethod
    def loss(self, output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
        """The mean loss of a batch as a 0-dim tensor, differentiable twice."""

    def step(
        self,
        learner: Learner,
        state: TrainState,
        batch: Batch,
        numbers: Numbers,
        generator: torch.Generator,
    ) -> tuple[TrainState, dict[str, Tensor]]:
        """One optimiser step along the gradient of ``loss``."""

        def loss(output: Output) -> tuple[Tensor, dict[str, Tensor]]:
            return self.loss(output, batch.labels, numbers), {}

        return descend(learner, state, batch.inputs, numbers, loss)
