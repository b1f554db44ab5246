"""Beta calibration (Kull, Silva Filho and Flach 2017) learned together with the network."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from calibration.complexity import MethodComplexity
from calibration.gradients import gradient
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
from calibration.methods.side_variables import adam_step, side_variable
from calibration.models import Output


class JointBetaHyperparameters(MethodHyperparameters):
    """``map_lr``: the learning rate of the map; ``map_steps``: its steps per network step."""

    map_lr: Annotated[float, Field(gt=0, le=1), LogUniform(1e-3, 1e-1)] = 0.01
    map_steps: Annotated[int, Field(ge=1, le=100)] = 1


def log_complements(log_p: Tensor) -> Tensor:
    """log(1 − p_k) for every class, finite whatever the logits.

    At most the largest p can be close to 1: its complement is the sum of the others.
    """
    classes = torch.arange(log_p.shape[-1], device=log_p.device)
    top = log_p.argmax(dim=-1, keepdim=True) == classes
    others = log_p.masked_fill(top, -float("inf"))
    return torch.where(top, others.logsumexp(dim=-1, keepdim=True), (-others.exp()).log1p())


def beta_logits(logits: Tensor, coefficients: Tensor) -> Tensor:
    """a_k log p_k − b_k log(1 − p_k) + c_k; ``coefficients`` has the rows a, b and c (3, K)."""
    a, b, c = coefficients
    log_p = logits.log_softmax(dim=-1)
    mapped: Tensor = a * log_p - b * log_complements(log_p) + c
    return mapped


@METHODS.register("joint_beta")
class JointBeta(Method):
    """softmax_k(a_k log p_k − b_k log(1 − p_k) + c_k), a, b ≥ 0, trained along with the network.

    With two classes this is beta calibration (Kull, Silva Filho and Flach 2017), σ(A log p − B
    log(1 − p) + C) with A = a_1 + b_2, B = b_1 + a_2 and C = c_1 − c_2; equal a_k with b = c = 0
    are temperature scaling. It starts as the identity (a = 1, b = c = 0). Every step first updates
    the network by the cross-entropy of the mapped output on the training batch, with the map
    fixed, and then the map by its cross-entropy on the held-out batch, with the network fixed,
    by Adam and projection on a, b ≥ 0. Predictions are made from the mapped output.
    """

    description = "cross-entropy through a beta-calibration map learned on held-out data"
    complexity = MethodComplexity.HELD_OUT
    Hyperparameters = JointBetaHyperparameters
    inference_state = ("map",)

    def __init__(self, hyperparameters: JointBetaHyperparameters) -> None:
        super().__init__(hyperparameters)
        self.map_steps = hyperparameters.map_steps

    @property
    def needs_held_out(self) -> bool:
        """A map fitted to training data corrects nothing: the network is fitted to it too."""
        return True

    def initial(self, learner: Learner, parameters: Tensor) -> dict[str, Tensor]:
        """The identity map and its optimiser's state."""
        identity = parameters.new_tensor([[1.0], [0.0], [0.0]]).repeat(1, learner.classes)
        return side_variable("map", identity)

    def step(
        self,
        learner: Learner,
        state: TrainState,
        batch: Batch,
        numbers: Numbers,
        generator: torch.Generator,
    ) -> tuple[TrainState, Records]:
        """One step of the network, then ``map_steps`` of the map."""
        fixed = state.method["map"]

        def loss(output: Output) -> tuple[Tensor, Records]:
            return F.cross_entropy(beta_logits(output.logits, fixed), batch.labels), {}

        state, records = descend(learner, state, batch.inputs, numbers, loss)
        assert batch.held_out is not None, "needs_held_out asks the trainer for it"
        # Evaluation mode, because that is where the map will be used.
        output, _ = learner.forward(
            state.parameters, state.buffers, batch.held_out.inputs, training=False
        )
        return self._with_better_map(state, output.logits, batch.held_out.labels, numbers), records

    def _with_better_map(
        self, state: TrainState, logits: Tensor, labels: Tensor, numbers: Numbers
    ) -> TrainState:
        logits = logits.detach()

        def loss(coefficients: Tensor) -> tuple[Tensor, Tensor]:
            value = F.cross_entropy(beta_logits(logits, coefficients), labels)
            return value, value

        method = state.method
        for _ in range(self.map_steps):
            slope, _ = gradient(loss, method["map"])
            method = adam_step(method, "map", slope, numbers["map_lr"])
            a_and_b, c = method["map"].split([2, 1])
            method["map"] = torch.cat([a_and_b.clamp_min(0), c])
        return state._replace(method=method)

    def map_logits(self, logits: Tensor, method_state: dict[str, Tensor]) -> Tensor:
        """The mapped output: its softmax is the calibrated prediction."""
        return beta_logits(logits, method_state["map"])
