"""BO4SC: sample weights learned so that the trained network is calibrated.

Sanguin et al. 2024, "Exploring the Potential of Bilevel Optimization for Calibrating
Neural Networks". The inner problem trains the network on weighted cross-entropy, the
outer problem moves the weights along the hypergradient of the binary cross-entropy of
confidence on held-out data.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from calibration.bilevel import Hypergradient, InnerProblem, make_engine
from calibration.bilevel.trajectory import start, train
from calibration.bilevel.weighted import Rows, unrolled_by_hand
from calibration.complexity import MethodComplexity
from calibration.hyperparameters import Integer, LogUniform, Uniform, When
from calibration.methods.descent import columns, from_columns, rates_in_columns
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
from calibration.models.dense import Dense
from calibration.objectives import confidence_bce, sece
from calibration.optimisers import Adam, Rates
from calibration.seeds import replayed
from calibration.steady import SteadyLoss

CHAOTIC_STEPS = 100
WARM = "warm"
BY_HAND = "flat_unroll"
"""The engine that needs no autograd for networks of linear layers."""
AUTOGRAD = "hypergradients by autograd"
# The most that a weight moves in an outer step. It matters if weights are not projected: within
# [0, 1] no move is longer. Tighter limits (0.1, 0.25) calibrated worse on Blobs 1.7 with 5 or more
# inner steps.
LARGEST_MOVE = 1.0

_OUTER_ADAM = Adam()
_MOMENTS = ("step", "mean", "square")


class Bo4scHyperparameters(EngineHyperparameters, MethodHyperparameters):
    """The paper's hyperparameters, and what its text leaves open.

    ``inner_steps``: T. ``outer_optimiser``: the paper names none; gradient descent (``gd``) or
    Adam. ``outer_lr``: its rate per sample; hypergradients of single weights shrink like 1/n, n
    being the size of their batch, so a weight moves along n times its hypergradient and the
    same value works for any n. ``outer_loss``: the loss of the network on held-out data; the
    paper's is ``confidence_bce``. ``sharpness``: a of its Boltzmann confidence. ``restart``:
    where the T steps begin, at the last θ_T (``warm``) or at θ⁰ with a new optimiser
    (``initial``, Algorithm 1 as printed: T must suffice to train a network). ``warm_share``:
    the share of all epochs trained with every weight at 1 before the first outer step; a restart
    at θ⁰ has none. ``project``: keep weights in [0, 1].

    Algorithm 1 as printed is ``restart: initial``, ``project: false``, a rate η_w = outer_lr · n,
    and gradient descent inside (training: sgd, momentum 0), except that no weight moves by more
    than 1 in a step; the paper's text has Adam inside.
    """

    inner_steps: Annotated[
        int,
        Field(ge=1, le=200),
        Integer(1, 20, log=True),
        When("restart", "initial", Integer(50, 200, log=True)),
    ] = 5
    outer_optimiser: Literal["gd", "adam"] = "gd"
    outer_lr: Annotated[
        float,
        Field(gt=0, le=1e6),
        LogUniform(0.03, 15.0),
        When("outer_optimiser", "adam", LogUniform(1e-3, 0.1)),
    ] = 2.0
    outer_loss: Literal["confidence_bce", "nll", "sece"] = "confidence_bce"
    sharpness: Annotated[float, Field(gt=0, le=1000), Uniform(20.0, 50.0)] = 30.0
    restart: Literal["warm", "initial"] = "warm"
    warm_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    project: bool = True


@METHODS.register("bo4sc")
class Bo4sc(Method):
    """min_w mean BCE(ĉ(x_j; θ_T(w)), correct_j) over held-out j,  θ_T: T steps on mean w_i CE_i.

    Sanguin et al. 2024.

    After every outer step training continues from θ_T with the optimiser's state, or restarts
    at θ⁰ (``restart``). With mini-batches the T inner steps take T consecutive batches of an
    epoch (all of them, if there are fewer), and only the weights of their rows are updated,
    together with their Adam moments. A restart always takes T steps: if an epoch or the training
    has fewer batches left, it repeats them. The running statistics of BatchNorm, used for
    held-out data, are constants in the hypergradient.
    """

    description = "sample weights learned by bilevel optimisation (BO4SC)"
    complexity = MethodComplexity.BILEVEL
    Hyperparameters = Bo4scHyperparameters
    hyperparameters: Bo4scHyperparameters
    version = 3

    def __init__(self, hyperparameters: MethodHyperparameters) -> None:
        super().__init__(hyperparameters)
        steps = self.hyperparameters.inner_steps
        if steps > CHAOTIC_STEPS:
            warnings.warn(
                f"bo4sc: inner_steps: hypergradients through {steps} inner steps are chaotic; "
                f"use {CHAOTIC_STEPS} or fewer",
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

    @property
    def alone(self) -> str:
        """Other engines differentiate by autograd, which does not work under ``torch.vmap``."""
        return "" if self.hyperparameters.engine == BY_HAND else AUTOGRAD

    def draw(self, batches: Sequence[Batch], generator: torch.Generator) -> dict[str, Tensor]:
        """A seed, so that an engine can repeat a step with the same dropout mask."""
        return {"masks": torch.randint(2**31, (), generator=generator)}

    def phase(self, progress: float) -> str:
        """``WARM`` before the first outer step."""
        chosen = self.hyperparameters
        return WARM if chosen.restart == "warm" and progress < chosen.warm_share else ""

    def initial(self, learner: Learner, parameters: Tensor) -> dict[str, Tensor]:
        """A weight of 1 for every sample, with Adam's moments and θ⁰ if they are needed."""
        weights = parameters.new_ones(learner.samples)
        memory = {"weights": weights}
        if self.hyperparameters.outer_optimiser == "adam":
            # Steps are counted per weight: with mini-batches not all weights are updated.
            memory |= {f"weights_{part}": torch.zeros_like(weights) for part in _MOMENTS}
        if self.hyperparameters.restart == "initial":
            buffers = learner.model.initial()[1]
            memory |= {"initial": parameters}
            memory |= {f"initial.{name}": value for name, value in buffers.items()}
        return memory

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
        if learner.dense is not None and self.hyperparameters.engine == BY_HAND:
            rates: Rates = {"lr": numbers["lr"], "weight_decay": numbers["weight_decay"]}
            return self._by_hand(learner, learner.dense, state, batches, numbers, rates)
        held_out = batches[-1].held_out
        assert held_out is not None, "the trainer provides what needs_held_out asks for"
        begin, count = self._begin(learner, state, len(batches))
        masks = (batches[0].drawn or self.draw(batches, generator))["masks"]
        passed = [begin.buffers]

        def inner_loss(parameters: Tensor, weights: Tensor, step: int) -> Tensor:
            batch = batches[step % len(batches)]
            # Engines may recompute a step: the same dropout mask, the same statistics.
            with replayed(masks, "inner", step):
                output, buffers = learner.forward(
                    parameters, passed[step], batch.inputs, training=True
                )
            if len(passed) == step + 1:
                passed.append(buffers)
            losses = F.cross_entropy(output.logits, batch.labels, reduction="none")
            return (weights[batch.rows] * losses).mean()

        def outer_loss(parameters: Tensor, weights: Tensor) -> Tensor:
            output, _ = learner.forward(parameters, passed[count], held_out.inputs, training=False)
            return self._judged(output.logits, held_out.labels, numbers)

        problem = InnerProblem(
            inner_loss, learner.optimiser, numbers["lr"], numbers["weight_decay"], count
        )
        memory = state.method
        if batches[0].phase == WARM:
            point = start(begin.parameters, begin.optimiser)
            parameters, optimiser, loss = train(problem, point, memory["weights"], range(count))
            logs = {"loss": loss}
        else:
            chosen = self.hyperparameters
            engine = make_engine(chosen.engine, chosen.engine_terms)
            found = engine.hypergradient(
                problem, outer_loss, begin.parameters, begin.optimiser, memory["weights"]
            )
            memory = self._moved(memory, found.gradient, numbers, batches)
            parameters, optimiser = found.parameters, found.optimiser
            logs = _logs(found)
        logs |= _moves(memory["weights"], state.method["weights"])
        return TrainState(parameters, passed[count], optimiser, memory), logs

    def steps_together(
        self, learner: Learner, state: TrainState, batches: Sequence[Batch], numbers: Numbers
    ) -> tuple[TrainState, dict[str, Tensor]] | None:
        """By batched products, if the network and the optimiser allow it."""
        if learner.dense is None or not getattr(learner.optimiser, "elementwise", False):
            raise RuntimeError(AUTOGRAD)
        begin = state._replace(optimiser=columns(state.optimiser))
        rates = rates_in_columns(numbers)
        after, logs = self._by_hand(learner, learner.dense, begin, batches, numbers, rates)
        return after._replace(optimiser=from_columns(after.optimiser)), logs

    def _by_hand(
        self,
        learner: Learner,
        dense: Dense,
        state: TrainState,
        batches: Sequence[Batch],
        numbers: Numbers,
        rates: Rates,
    ) -> tuple[TrainState, dict[str, Tensor]]:
        """``steps`` of one network, or of K that are stacked, their scalars as columns."""
        held_out = batches[-1].held_out
        assert held_out is not None, "the trainer provides what needs_held_out asks for"
        begin, count = self._begin(learner, state, len(batches))
        judged = torch.func.grad_and_value(self._judged)
        if state.parameters.dim() > 1:
            judged = torch.vmap(judged)

        def outer_slope(parameters: Tensor) -> tuple[Tensor, Tensor]:
            made = dense.forward(parameters, held_out.inputs)
            with SteadyLoss():
                bar, value = judged(made.logits, held_out.labels, numbers)
            return made.backward(bar), value

        warm = batches[0].phase == WARM
        rows = [Rows(*batches[step % len(batches)][:3]) for step in range(count)]
        found = unrolled_by_hand(
            dense,
            learner.optimiser,
            rows,
            (begin.parameters, begin.optimiser),
            state.method["weights"],
            rates,
            None if warm else outer_slope,
        )
        memory = state.method
        logs = {"loss": found.inner_loss}
        if not warm:
            with torch.no_grad():
                memory = self._moved(memory, found.gradient, numbers, batches)
            logs = _logs(found)
        logs |= _moves(memory["weights"], state.method["weights"])
        return TrainState(found.parameters, state.buffers, found.optimiser, memory), logs

    def snapshot(self, state: TrainState) -> dict[str, Tensor]:
        """One weight per training row."""
        return {"weights": state.method["weights"]}

    def _begin(self, learner: Learner, state: TrainState, batches: int) -> tuple[TrainState, int]:
        """Where the inner steps begin, and how many there are."""
        if self.hyperparameters.restart == "warm":
            return state, batches
        parameters = state.method["initial"]
        buffers = {name: state.method[f"initial.{name}"] for name in state.buffers}
        if parameters.dim() > 1:
            slots = columns(torch.vmap(learner.optimiser.initial)(parameters))
        else:
            slots = learner.optimiser.initial(parameters)
        begin = TrainState(parameters, buffers, slots, {})
        return begin, self.hyperparameters.inner_steps

    def _judged(self, logits: Tensor, labels: Tensor, numbers: Numbers) -> Tensor:
        match self.hyperparameters.outer_loss:
            case "confidence_bce":
                return confidence_bce(logits, labels, sharpness=numbers["sharpness"])
            case "nll":
                return F.cross_entropy(logits, labels)
            case "sece":
                return sece(logits, labels)

    def _moved(
        self,
        memory: dict[str, Tensor],
        slope: Tensor,
        numbers: Numbers,
        batches: Sequence[Batch],
    ) -> dict[str, Tensor]:
        """The weights after one outer step, and Adam's moments if it has them."""
        weights = memory["weights"]
        samples = torch.zeros_like(weights)
        for batch in batches:
            samples = samples.scatter(-1, batch.rows, float(batch.rows.shape[-1]))
        # A hypergradient that overflowed is ignored: that weight is unchanged.
        heard = (samples > 0) & slope.isfinite()
        slope = torch.where(heard, samples * slope, 0.0)
        if self.hyperparameters.outer_optimiser == "adam":
            before = {part: memory[f"weights_{part}"] for part in _MOMENTS}
            rate = numbers["outer_lr"].unsqueeze(-1)
            aim, after = _OUTER_ADAM.update(
                weights, slope, before, lr=rate, weight_decay=torch.zeros_like(rate)
            )
            memory = memory | {
                f"weights_{part}": torch.where(heard, after[part], before[part])
                for part in _MOMENTS
            }
            move = torch.where(heard, weights - aim, 0.0)
        else:
            move = numbers["outer_lr"].unsqueeze(-1) * slope
        weights = weights - move.clamp(-LARGEST_MOVE, LARGEST_MOVE)
        projected = weights.clamp(0.0, 1.0) if self.hyperparameters.project else weights
        return memory | {"weights": projected}


def _logs(found: Hypergradient) -> dict[str, Tensor]:
    return {
        "loss": found.inner_loss,
        "outer_loss": found.value,
        "hypergradient_norm": found.gradient.norm(dim=-1),
    }


def _moves(weights: Tensor, before: Tensor) -> dict[str, Tensor]:
    """A step's effect on the weights: their mean, the shares of low ones and of large moves."""
    return {
        "weight_mean": weights.mean(-1),
        "weight_low": (weights <= 0.5).float().mean(-1),
        "weight_jumps": ((weights - before).abs() > 0.5).float().mean(-1),
    }
