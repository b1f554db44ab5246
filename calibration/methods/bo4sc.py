"""BO4SC: sample weights learned so that the trained network is calibrated.

Sanguin et al. 2024, "Exploring the Potential of Bilevel Optimization for Calibrating
Neural Networks". The inner problem trains the network on weighted cross-entropy, the
outer problem moves the weights along the hypergradient of the binary cross-entropy of
confidence on held-out data.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from calibration.bilevel import InnerProblem, make_engine
from calibration.bilevel.trajectory import start, train
from calibration.complexity import MethodComplexity
from calibration.hyperparameters import Integer, LogUniform, Uniform
from calibration.methods.meta import EngineHyperparameters
from calibration.methods.method import (
    METHODS,
    Batch,
    Learner,
    Method,
    MethodHyperparameters,
    Numbers,
    TrainState,
)
from calibration.objectives import confidence_bce
from calibration.optimisers import SGD, Optimiser
from calibration.seeds import seeded

CHAOTIC_STEPS = 100
# Bites where weights are not projected; within [0, 1] the bounds themselves are the clip. Tighter
# ones (0.1, 0.25) calibrated worse on Blobs 1.7 from 5 inner steps on.
LARGEST_MOVE = 1.0


class Bo4scHyperparameters(EngineHyperparameters, MethodHyperparameters):
    """The paper's hyperparameters, and what tempers its algorithm.

    ``inner_steps``: T. ``outer_lr``: the outer learning rate per sample; hypergradients of
    single weights shrink like 1/n, n being the size of their batch, so a weight moves by
    outer_lr · n times its hypergradient and the same value serves at any n. ``sharpness``: a of
    the Boltzmann confidence. ``warm_share``: the share of all epochs trained with every weight
    at 1 before the first outer step. ``project``: keep weights in [0, 1]. ``as_printed``:
    Algorithm 1 to the letter: gradient descent inside, the plain rate ``outer_lr`` outside, no
    warm-up, no projection (the paper's text has Adam inside; that is the default here).
    """

    inner_steps: Annotated[int, Field(ge=1, le=200), Integer(1, 20, log=True)] = 5
    outer_lr: Annotated[float, Field(gt=0, le=1e6), LogUniform(1.0, 15.0)] = 2.0
    sharpness: Annotated[float, Field(gt=0, le=1000), Uniform(20.0, 50.0)] = 30.0
    warm_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    project: bool = True
    as_printed: bool = False


@METHODS.register("bo4sc")
class Bo4sc(Method):
    """min_w mean BCE(ĉ(x_j; θ_T(w)), correct_j) over held-out j,  θ_T: T steps on mean w_i CE_i.

    After every outer step training goes on from θ_T with the optimiser's state carried over.
    With mini-batches the T inner steps take T consecutive batches of an epoch (all of them, if
    there are fewer), and only the weights of their rows move. The running statistics of
    BatchNorm, by which held-out data is judged, count as constants in the hypergradient.
    """

    description = "sample weights learned by bilevel optimisation (BO4SC)"
    complexity = MethodComplexity.BILEVEL
    Hyperparameters = Bo4scHyperparameters
    hyperparameters: Bo4scHyperparameters

    def __init__(self, hyperparameters: MethodHyperparameters) -> None:
        super().__init__(hyperparameters)
        steps = self.hyperparameters.inner_steps
        if steps > CHAOTIC_STEPS:
            warnings.warn(
                f"bo4sc: hypergradients through {steps} inner steps are chaotic; "
                f"{CHAOTIC_STEPS} or fewer are sensible",
                stacklevel=2,
            )

    @property
    def needs_held_out(self) -> bool:
        """The outer problem's data."""
        return True

    @property
    def window(self) -> int:
        """The inner steps between two outer ones."""
        return self.hyperparameters.inner_steps

    def initial(self, learner: Learner, parameters: Tensor) -> dict[str, Tensor]:
        """Every sample weighs 1."""
        return {"weights": parameters.new_ones(learner.samples)}

    def step(
        self,
        learner: Learner,
        state: TrainState,
        batch: Batch,
        numbers: Numbers,
        generator: torch.Generator,
    ) -> tuple[TrainState, dict[str, Tensor]]:
        """One inner step and one outer step."""
        return self.steps(learner, state, [batch], numbers, generator)

    def steps(
        self,
        learner: Learner,
        state: TrainState,
        batches: Sequence[Batch],
        numbers: Numbers,
        generator: torch.Generator,
    ) -> tuple[TrainState, dict[str, Tensor]]:
        """One inner step per batch, then one outer step on the last batch's held-out data."""
        held_out = batches[-1].held_out
        assert held_out is not None, "the trainer provides what needs_held_out asks for"
        draw = int(torch.randint(2**31, (), generator=generator))
        passed = [state.buffers]

        def inner_loss(parameters: Tensor, weights: Tensor, step: int) -> Tensor:
            batch = batches[step]
            # Engines may compute a step again: the same dropout mask, the same statistics.
            with seeded(draw, "inner", step):
                output, buffers = learner.forward(
                    parameters, passed[step], batch.inputs, training=True
                )
            if len(passed) == step + 1:
                passed.append(buffers)
            losses = F.cross_entropy(output.logits, batch.labels, reduction="none")
            return (weights[batch.rows] * losses).mean()

        def outer_loss(parameters: Tensor, weights: Tensor) -> Tensor:
            output, _ = learner.forward(
                parameters, passed[len(batches)], held_out.inputs, training=False
            )
            return confidence_bce(output.logits, held_out.labels, sharpness=numbers["sharpness"])

        inner, inner_state = self._inner(learner, state)
        problem = InnerProblem(
            inner_loss, inner, numbers["lr"], numbers["weight_decay"], len(batches)
        )
        weights = state.method["weights"]
        if self._warm(numbers):
            begin = start(state.parameters, inner_state)
            parameters, optimiser, loss = train(problem, begin, weights, range(len(batches)))
            logs = {"loss": loss}
        else:
            chosen = self.hyperparameters
            engine = make_engine(chosen.engine, chosen.engine_terms)
            found = engine.hypergradient(
                problem, outer_loss, state.parameters, inner_state, weights
            )
            weights = self._moved(weights, found.gradient, numbers, batches)
            parameters, optimiser = found.parameters, found.optimiser
            logs = {
                "loss": found.inner_loss,
                "outer_loss": found.value,
                "hypergradient_norm": found.gradient.norm(),
            }
        logs |= {"weight_mean": weights.mean(), "weight_low": (weights <= 0.5).float().mean()}
        if self.hyperparameters.as_printed:
            optimiser = state.optimiser
        return TrainState(parameters, passed[len(batches)], optimiser, {"weights": weights}), logs

    def snapshot(self, state: TrainState) -> dict[str, Tensor]:
        """One weight per training row."""
        return {"weights": state.method["weights"]}

    def _inner(self, learner: Learner, state: TrainState) -> tuple[Optimiser, dict[str, Tensor]]:
        """The inner optimiser and its state; descent as printed has none worth carrying over."""
        if not self.hyperparameters.as_printed:
            return learner.optimiser, state.optimiser
        descent = SGD(momentum=0.0)
        return descent, descent.initial(state.parameters)

    def _warm(self, numbers: Numbers) -> bool:
        if self.hyperparameters.as_printed:
            return False
        return bool(numbers["progress"] < numbers["warm_share"])

    def _moved(
        self, weights: Tensor, slope: Tensor, numbers: Numbers, batches: Sequence[Batch]
    ) -> Tensor:
        if self.hyperparameters.as_printed:
            return weights - numbers["outer_lr"] * slope
        samples = torch.zeros_like(weights)
        for batch in batches:
            samples[batch.rows] = float(len(batch.rows))
        move = (numbers["outer_lr"] * samples * slope).clamp(-LARGEST_MOVE, LARGEST_MOVE)
        # A hypergradient that overflowed says nothing: that weight stays where it is.
        weights = weights - torch.where(slope.isfinite(), move, 0.0)
        return weights.clamp(0.0, 1.0) if self.hyperparameters.project else weights
