"""A weighted sum of accuracy, calibration and uncertainty losses, with three weighting schemes."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor
from torch.nn import functional as F

from calibration.bilevel import InnerProblem, make_engine
from calibration.complexity import MethodComplexity
from calibration.hyperparameters import Choice, LogUniform
from calibration.methods.base_losses import BaseLossHyperparameters, base_loss
from calibration.methods.descent import Records, descend
from calibration.methods.method import METHODS, Batch, Learner, Method, Numbers, TrainState
from calibration.methods.side_variables import adam_step, side_variable
from calibration.models import Output
from calibration.objectives import OBJECTIVES, confidence_penalty
from calibration.optimisers import SGD

TERMS = ("accuracy", "calibration", "uncertainty")
LEAST_WEIGHT = 1e-4


class MultiObjectiveHyperparameters(BaseLossHyperparameters):
    """``lambda1…3``: weights of accuracy (``base``), ``calibration`` and uncertainty.

    ``calibration`` names the objective; ``weighting`` says how the weights behave; ``ramp`` is
    the share of all epochs over which ``scheduled`` raises λ2 and λ3; ``outer_lr`` is the
    learning rate of ``meta``'s log-weights.
    """

    lambda1: Annotated[float, Field(gt=0, le=100)] = 1.0
    lambda2: Annotated[float, Field(ge=0, le=100), LogUniform(0.05, 5.0)] = 0.25
    lambda3: Annotated[float, Field(ge=0, le=100), LogUniform(0.01, 1.0)] = 0.05
    calibration: Annotated[str, Choice(("dece", "mmce", "sb_ece"))] = "dece"
    weighting: Annotated[
        Literal["fixed", "scheduled", "meta"], Choice(("fixed", "scheduled", "meta"))
    ] = "fixed"
    ramp: Annotated[float, Field(gt=0, le=1)] = 0.5
    outer_lr: Annotated[float, Field(gt=0, le=1), LogUniform(1e-3, 1e-1)] = 0.01

    @field_validator("calibration")
    @classmethod
    def _known(cls, value: str) -> str:
        OBJECTIVES[value]  # raises a ValueError that suggests the nearest names
        return value


@METHODS.register("multi_objective")
class MultiObjective(Method):
    """L = λ1·accuracy + λ2·calibration + λ3·uncertainty; uncertainty is minus the entropy.

    ``fixed`` keeps the weights. ``scheduled`` multiplies λ2 and λ3 by min(1, progress/ramp),
    so that accuracy comes first. ``meta`` learns their proportions w = (λ1 + λ2 + λ3)·softmax(u)
    from held-out data: every step looks ahead by one plain gradient step, moves u along the
    gradient of the held-out cross-entropy there with Adam(outer_lr), and then takes the real
    step with the new weights. The sum is constant, because a free scale would only act as a
    second learning rate.
    """

    description = "λ1 · accuracy + λ2 · calibration + λ3 · uncertainty, fixed, scheduled or learned"
    complexity = MethodComplexity.BILEVEL  # that of its most complex weighting
    Hyperparameters = MultiObjectiveHyperparameters

    def __init__(self, hyperparameters: MultiObjectiveHyperparameters) -> None:
        super().__init__(hyperparameters)
        self.base = hyperparameters.base
        self.calibration = OBJECTIVES[hyperparameters.calibration]
        self.weighting = hyperparameters.weighting
        self.lambdas = (
            hyperparameters.lambda1,
            hyperparameters.lambda2,
            hyperparameters.lambda3,
        )

    @property
    def needs_held_out(self) -> bool:
        """Only ``meta`` learns its weights, on held-out data."""
        return self.weighting == "meta"

    @property
    def alone(self) -> str:
        """As for all bilevel methods, if the weights are learned."""
        return "hypergradients by autograd" if self.weighting == "meta" else ""

    def initial(self, learner: Learner, parameters: Tensor) -> dict[str, Tensor]:
        """For ``meta``: logits of the weights, at the λs, and their optimiser's state."""
        if self.weighting != "meta":
            return {}
        u = parameters.new_tensor(self.lambdas).clamp_min(LEAST_WEIGHT).log()
        return side_variable("u", u)

    def terms(self, logits: Tensor, labels: Tensor, numbers: Numbers) -> Tensor:
        """The three losses of a batch, unweighted (3,)."""
        accuracy = base_loss(self.base, logits, labels, numbers)
        calibration = self.calibration(logits, labels)
        return torch.stack([accuracy, calibration, confidence_penalty(logits, labels)])

    def step(
        self,
        learner: Learner,
        state: TrainState,
        batch: Batch,
        numbers: Numbers,
        generator: torch.Generator,
    ) -> tuple[TrainState, Records]:
        """One optimiser step on the weighted sum; records the weights it used."""
        lambdas = torch.stack([numbers["lambda1"], numbers["lambda2"], numbers["lambda3"]])
        weights = lambdas
        if self.weighting == "scheduled":
            share = (numbers["progress"] / numbers["ramp"]).clamp_max(1)
            weights = torch.cat([lambdas[:1], share * lambdas[1:]])
        elif self.weighting == "meta":
            state = self._with_better_weights(learner, state, batch, numbers)
            weights = lambdas.sum() * state.method["u"].softmax(dim=-1)

        def loss(output: Output) -> tuple[Tensor, Records]:
            terms = self.terms(output.logits, batch.labels, numbers)
            used = zip(TERMS, weights, strict=True)
            return weights @ terms, {f"weight_{name}": weight for name, weight in used}

        return descend(learner, state, batch.inputs, numbers, loss)

    def _with_better_weights(
        self, learner: Learner, state: TrainState, batch: Batch, numbers: Numbers
    ) -> TrainState:
        held_out = batch.held_out
        assert held_out is not None, "needs_held_out asks the trainer for it"
        total = numbers["lambda1"] + numbers["lambda2"] + numbers["lambda3"]

        # Statistics of either pass are discarded: the look-ahead never happened.
        def inner(parameters: Tensor, u: Tensor, step: int) -> Tensor:
            output, _ = learner.forward(parameters, state.buffers, batch.inputs, training=True)
            return total * (u.softmax(dim=-1) @ self.terms(output.logits, batch.labels, numbers))

        def outer(parameters: Tensor, u: Tensor) -> Tensor:
            output, _ = learner.forward(parameters, state.buffers, held_out.inputs, training=False)
            return F.cross_entropy(output.logits, held_out.labels)

        ahead = SGD(momentum=0.0)
        problem = InnerProblem(inner, ahead, numbers["lr"], numbers["weight_decay"], steps=1)
        velocity = ahead.initial(state.parameters)
        found = make_engine("flat_unroll").hypergradient(
            problem, outer, state.parameters, velocity, state.method["u"]
        )
        method = adam_step(state.method, "u", found.gradient, numbers["outer_lr"])
        return state._replace(method=method)
