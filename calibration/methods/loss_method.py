"""Methods that are ordinary gradient training of a loss on the network's output."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from calibration.gradients import gradient
from calibration.methods.method import Batch, Learner, Method, Numbers, TrainState
from calibration.models import Output


class LossMethod(Method):
    """A method whose whole idea is ``loss``: everything else is plain training."""

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

        def objective(parameters: Tensor) -> tuple[Tensor, tuple[Tensor, dict[str, Tensor]]]:
            output, buffers = learner.forward(
                parameters, state.buffers, batch.inputs, training=True
            )
            loss = self.loss(output, batch.labels, numbers)
            return loss, (loss, buffers)

        slope, (loss, buffers) = gradient(objective, state.parameters)
        parameters, optimiser = learner.optimiser.update(
            state.parameters,
            slope,
            state.optimiser,
            lr=numbers["lr"],
            weight_decay=numbers["weight_decay"],
        )
        return TrainState(parameters, buffers, optimiser, state.method), {"loss": loss.detach()}
