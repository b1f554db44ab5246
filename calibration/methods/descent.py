"""One optimiser step along the gradient of a loss, for methods that are more than a loss."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from calibration.gradients import gradient
from calibration.methods.method import Learner, Numbers, TrainState
from calibration.models import Output

Records = dict[str, Tensor]

LossAndRecords = Callable[[Output], tuple[Tensor, Records]]
"""The network's output → a 0-dim loss, and whatever else of it is worth handing back."""


def slope(
    learner: Learner, state: TrainState, inputs: Tensor, loss: LossAndRecords
) -> tuple[Tensor, Records, dict[str, Tensor]]:
    """The gradient of ``loss`` at the state, the detached records, and the new buffers.

    The records are those of ``loss``, and ``loss`` itself.
    """

    def objective(parameters: Tensor) -> tuple[Tensor, tuple[Records, dict[str, Tensor]]]:
        output, buffers = learner.forward(parameters, state.buffers, inputs, training=True)
        value, records = loss(output)
        return value, ({"loss": value} | records, buffers)

    found, (records, buffers) = gradient(objective, state.parameters)
    return found, {name: value.detach() for name, value in records.items()}, buffers


def descend(
    learner: Learner, state: TrainState, inputs: Tensor, numbers: Numbers, loss: LossAndRecords
) -> tuple[TrainState, Records]:
    """The state after one optimiser step along ``slope``, and the records."""
    found, records, buffers = slope(learner, state, inputs, loss)
    return moved(learner, state, found, numbers)._replace(buffers=buffers), records


def moved(learner: Learner, state: TrainState, along: Tensor, numbers: Numbers) -> TrainState:
    """The state after one optimiser step along a given gradient."""
    parameters, optimiser = learner.optimiser.update(
        state.parameters,
        along,
        state.optimiser,
        lr=numbers["lr"],
        weight_decay=numbers["weight_decay"],
    )
    return state._replace(parameters=parameters, optimiser=optimiser)
