"""One optimiser step along the gradient of a loss, for methods that are more than a loss."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from calibration.gradients import differentiated, gradient
from calibration.methods.method import Learner, Numbers, TrainState
from calibration.models import Output
from calibration.models.dense import Dense
from calibration.optimisers import OptimiserState, Rates

Records = dict[str, Tensor]

LossAndRecords = Callable[[Output], tuple[Tensor, Records]]
"""The network's output → a 0-dim loss, and other tensors to return."""


def slope(
    learner: Learner, state: TrainState, inputs: Tensor, loss: LossAndRecords
) -> tuple[Tensor, Records, dict[str, Tensor]]:
    """The gradient of ``loss`` at the state, the detached records, and the new buffers.

    The records are those of ``loss``, and ``loss`` itself.
    """
    if learner.dense is not None and not differentiated():
        return (*_by_hand(learner.dense, state.parameters, inputs, loss), state.buffers)

    def objective(parameters: Tensor) -> tuple[Tensor, tuple[Records, dict[str, Tensor]]]:
        output, buffers = learner.forward(parameters, state.buffers, inputs, training=True)
        value, records = loss(output)
        return value, ({"loss": value} | records, buffers)

    found, (records, buffers) = gradient(objective, state.parameters)
    return found, {name: value.detach() for name, value in records.items()}, buffers


def _by_hand(
    dense: Dense, parameters: Tensor, inputs: Tensor, loss: LossAndRecords
) -> tuple[Tensor, Records]:
    """Like autograd, but only ``loss`` has a graph."""
    made = dense.forward(parameters, inputs)
    seen = Output(made.logits.requires_grad_(), made.features.detach().requires_grad_())
    with torch.enable_grad():
        value, records = loss(seen)
    logits_bar, features_bar = torch.autograd.grad(value, seen, allow_unused=True)
    if logits_bar is None:
        logits_bar = torch.zeros_like(seen.logits)
    records = {name: found.detach() for name, found in ({"loss": value} | records).items()}
    return made.backward(logits_bar, features_bar), records


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


def moved_together(
    learner: Learner, state: TrainState, along: Tensor, numbers: Numbers
) -> TrainState:
    """``moved`` of K networks, everything stacked along a first dimension."""
    rates = {name: numbers[name] for name in ("lr", "weight_decay")}
    update = learner.optimiser.update
    if not getattr(learner.optimiser, "elementwise", False):
        parameters, optimiser = torch.vmap(lambda p, g, s, r: update(p, g, s, **r))(
            state.parameters, along, state.optimiser, rates
        )
        return state._replace(parameters=parameters, optimiser=optimiser)
    parameters, optimiser = update(
        state.parameters, along, columns(state.optimiser), **rates_in_columns(numbers)
    )
    return state._replace(parameters=parameters, optimiser=from_columns(optimiser))


def rates_in_columns(numbers: Numbers) -> Rates:
    """The rates of K networks, for an optimiser that takes their vectors as rows."""
    return {"lr": numbers["lr"].unsqueeze(1), "weight_decay": numbers["weight_decay"].unsqueeze(1)}


def columns(state: OptimiserState) -> OptimiserState:
    """The state of K networks, with one number per network as a column."""
    return {name: v.unsqueeze(1) if v.dim() == 1 else v for name, v in state.items()}


def from_columns(state: OptimiserState) -> OptimiserState:
    """The inverse of ``columns``."""
    return {name: v.squeeze(1) if v.shape[1] == 1 else v for name, v in state.items()}
