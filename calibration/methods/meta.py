"""Methods that learn something about their own training on held-out data.

In every step (Luketina et al. 2016; Bohdal et al. 2021): look ahead by one gradient step of
the inner loss, evaluate the resulting network by the outer loss on a held-out batch, move
the outer variables along that hypergradient, and only then take the real step with the new
outer variables held constant. The outer loss's gradient ends in the outer variables: it
does not enter the network's own update.

The hypergradient is proportional to the look-ahead's learning rate. It is computed per unit of
that rate: a schedule that lowers the rate would otherwise shrink it, and Adam, whose moments
remember its former size, would stop.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import AfterValidator, Field
from torch import Tensor
from torch.nn import functional as F

from calibration.bilevel import ENGINES, InnerLoss, InnerProblem, OuterLoss, make_engine
from calibration.complexity import MethodComplexity
from calibration.data import Part
from calibration.gradients import gradient
from calibration.hyperparameters import Choice, Hyperparameters, LogUniform
from calibration.methods.descent import moved
from calibration.methods.method import (
    Batch,
    Learner,
    Method,
    MethodHyperparameters,
    Numbers,
    TrainState,
)
from calibration.methods.side_variables import adam_step, concern, side_variable
from calibration.models import Output
from calibration.optimisers import SGD, Optimiser
from calibration.seeds import replayed


def _known_engine(name: str) -> str:
    ENGINES[name]  # raises a ValueError that lists the valid names
    return name


EngineName = Annotated[str, AfterValidator(_known_engine)]


class EngineHyperparameters(Hyperparameters):
    """``engine``: how hypergradients are computed; ``engine_terms``: k of engines that truncate."""

    engine: EngineName = "flat_unroll"
    engine_terms: Annotated[int, Field(ge=1, le=1000)] = 5


class MetaHyperparameters(EngineHyperparameters, MethodHyperparameters):
    """``outer_lr``: Adam's rate for the outer variables. ``outer_beta2``: how long Adam
    remembers the size of hypergradients; they fall by orders of magnitude as the training loss
    does, and at 0.999 the first ones keep all later steps small. ``outer_warmup``: the share of
    training over which the rate rises from 0. ``outer_batch``: how many held-out rows the
    outer loss sees in a step, unless there are fewer; with 64 rows the sign of the hypergradient
    is close to a coin flip. ``lookahead``: which parameters the look-ahead step moves, those
    of the last layer or all (at the cost of a second backward pass through the network).

    The defaults come from ``fl_gamma_sece`` on validation data of digits, wine, breast cancer
    and blobs (one seed; rates 0.01, 0.03 and 0.1, the three β2, warm-up 0 and 0.2). A rate of
    0.1 harmed blobs; with the warm-up, mean NLL fell from 0.234 to 0.230 at the rate 0.03; the
    three β2 gave the same NLL within 0.001, but at 0.99 and 0.999 the last steps on wine were
    0.01 of the rate, at 0.9 they were 0.12.
    """

    outer_lr: Annotated[float, Field(gt=0, le=1), LogUniform(1e-3, 0.1)] = 0.03
    outer_beta2: Annotated[float, Field(ge=0, lt=1), Choice((0.9, 0.99, 0.999))] = 0.9
    outer_warmup: Annotated[float, Field(ge=0, le=1), Choice((0.0, 0.2))] = 0.2
    outer_batch: Annotated[int, Field(ge=1, le=100_000)] = 512
    lookahead: Literal["head", "all"] = "head"


STARTED = "started"


class Trained(NamedTuple):
    """The inputs of an inner loss: the output on a batch, its labels, the last layer."""

    output: Output
    labels: Tensor
    head: Tensor


class MetaMethod(Method):
    """Subclasses define what is learned (``initial_outer``), how it enters the inner loss, and
    the outer loss.
    """

    complexity = MethodComplexity.BILEVEL
    hyperparameters: MetaHyperparameters
    read_by_the_host = ("outer_beta2",)

    @property
    @abstractmethod
    def watched(self) -> tuple[str, float]:
        """A positive one of ``records`` that shows how far the outer variables have moved:
        its name, and its value before anything is learned.
        """

    @property
    def rate_name(self) -> str:
        """The hyperparameter that is Adam's rate."""
        return "outer_lr"

    @property
    def needs_held_out(self) -> bool:
        """The outer loss's data."""
        return True

    @property
    def held_out_batch(self) -> int | None:
        """``outer_batch`` rows."""
        return self.hyperparameters.outer_batch

    @property
    def alone(self) -> str:
        """Engines differentiate by autograd, which does not work under ``torch.vmap``."""
        return "hypergradients by autograd"

    def draw(self, batches: Sequence[Batch], generator: torch.Generator) -> dict[str, Tensor]:
        """A seed, so that look-ahead and real step use the same dropout mask."""
        return {"masks": torch.randint(2**31, (), generator=generator)}

    def phase(self, progress: float) -> str:
        """Only in the first epoch may the outer variables still need initialisation."""
        return STARTED if progress > 0 else ""

    @abstractmethod
    def initial_outer(self, features: int, classes: int) -> Tensor:
        """The outer variables as one vector, for networks with ``features`` penultimate units."""

    @abstractmethod
    def inner_loss(self, trained: Trained, outer: Tensor, numbers: Numbers) -> Tensor:
        """The mean training loss of a batch, as a function of the outer variables too."""

    @abstractmethod
    def outer_loss(self, output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
        """The loss on held-out data that the outer variables minimise."""

    def start(self, outer: Tensor, output: Output, numbers: Numbers) -> tuple[Tensor, Tensor]:
        """The outer variables fitted to the first batch the network sees, and their gains.

        An entry moves by at most about its gain times ``rate`` in one step.
        """
        return outer, torch.ones_like(outer)

    def rate(self, numbers: Numbers) -> Tensor:
        """Adam's rate, before the entries' gains."""
        return numbers[self.rate_name]

    @abstractmethod
    def records(self, output: Output, outer: Tensor, numbers: Numbers) -> dict[str, Tensor]:
        """What to record of the outer variables in every step, including ``watched``."""

    def concerns(self, curve: Sequence[Mapping[str, float]], tried: int, steps: int) -> list[str]:
        """Whether the outer variables explode or are frozen, and which rate to change."""
        name, start = self.watched
        values = [start, *(row[f"train/{name}"] for row in curve)]
        rate = f"{self.rate_name} (now {getattr(self.hyperparameters, self.rate_name):g})"
        found = concern(name, values, tried, steps, rate)
        return [found] if found else []

    def initial(self, learner: Learner, parameters: Tensor) -> dict[str, Tensor]:
        """The outer variables, their gains, Adam's moments, and a flag: not yet started."""
        weight, _ = _head(learner, parameters)
        outer = self.initial_outer(weight.shape[1], weight.shape[0]).to(parameters)
        started = {"gain": torch.ones_like(outer), "started": parameters.new_zeros(())}
        return side_variable("outer", outer) | started

    def step(
        self,
        learner: Learner,
        state: TrainState,
        batch: Batch,
        numbers: Numbers,
        generator: torch.Generator,
    ) -> tuple[TrainState, dict[str, Tensor]]:
        """Move the outer variables by the look-ahead, then the network by the real step."""
        masks = (batch.drawn or self.draw([batch], generator))["masks"]

        def objective(parameters: Tensor) -> tuple[Tensor, _Found]:
            with replayed(masks, "real"):
                output, buffers = learner.forward(
                    parameters, state.buffers, batch.inputs, training=True
                )
            seen = Output(output.logits.detach(), output.features.detach())
            memory, found = self._meta_step(learner, state, batch, seen, numbers, masks)
            outer = memory["outer"]
            trained = Trained(output, batch.labels, _head(learner, parameters)[0])
            loss = self.inner_loss(trained, outer, numbers)
            logs = {"loss": loss.detach()} | found | self.records(seen, outer, numbers)
            return loss, (buffers, memory, logs)

        slope, (buffers, memory, logs) = gradient(objective, state.parameters)
        after = moved(learner, state, slope, numbers)
        return after._replace(buffers=buffers, method=memory), logs

    def _meta_step(
        self,
        learner: Learner,
        state: TrainState,
        batch: Batch,
        seen: Output,
        numbers: Numbers,
        masks: Tensor,
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The outer variables and their moments after one Adam step, and what to record of it."""
        assert batch.held_out is not None, "the trainer provides what needs_held_out asks for"
        memory = state.method
        if batch.phase != STARTED:
            outer, gain = self.start(memory["outer"], seen, numbers)
            begun = memory["started"] > 0
            memory = memory | {
                "outer": torch.where(begun, memory["outer"], outer),
                "gain": torch.where(begun, memory["gain"], gain),
                "started": torch.ones_like(memory["started"]),
            }
        ahead = _head_ahead if self.hyperparameters.lookahead == "head" else _all_ahead
        problem, judge, parameters = ahead(
            self, learner, state, batch, batch.held_out, seen, numbers, masks
        )
        engine = make_engine(self.hyperparameters.engine, self.hyperparameters.engine_terms)
        found = engine.hypergradient(
            problem, judge, parameters, problem.optimiser.initial(parameters), memory["outer"]
        )
        along = found.gradient / numbers["lr"] if engine.grows_with_lr else found.gradient
        rates = self.rate(numbers) * _warmed(numbers) * memory["gain"]
        beta2 = self.hyperparameters.outer_beta2  # categorical: the same in every step
        after = adam_step(memory, "outer", along, rates, beta2=beta2)
        return after, {"outer_loss": found.value} | _movement(memory, after, along, rates)


def _warmed(numbers: Numbers) -> Tensor:
    """The current fraction of the outer rate: progress / warm-up, at most 1."""
    progress, warmup = numbers["progress"], numbers["outer_warmup"]
    return torch.where(progress < warmup, progress / warmup, torch.ones_like(progress))


def _movement(
    before: dict[str, Tensor], after: dict[str, Tensor], along: Tensor, rates: Tensor
) -> dict[str, Tensor]:
    """Size and spread of the hypergradient's entries, and of Adam's steps in units of the rate."""
    steps = (after["outer"] - before["outer"]) / rates.clamp_min(torch.finfo(rates.dtype).tiny)
    return {
        "outer_gradient_mean": along.abs().mean(),
        "outer_gradient_std": along.std(unbiased=False),
        "outer_step_mean": steps.abs().mean(),
        "outer_step_std": steps.std(unbiased=False),
    }


_Found = tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]
_Ahead = tuple[InnerProblem, OuterLoss, Tensor]


_PLAIN = SGD(momentum=0.0)
"""The look-ahead does not use the network's own momentum."""


def _problem(loss: InnerLoss, numbers: Numbers, optimiser: Optimiser = _PLAIN) -> InnerProblem:
    """One plain gradient step."""
    return InnerProblem(loss, optimiser, numbers["lr"], numbers["weight_decay"], steps=1)


def _head_ahead(
    method: MetaMethod,
    learner: Learner,
    state: TrainState,
    batch: Batch,
    held_out: Part,
    seen: Output,
    numbers: Numbers,
    masks: Tensor,
) -> _Ahead:
    """Look ahead on the last layer only: features do not change, so nothing is recomputed."""
    weight, bias = _head(learner, state.parameters)
    judged, _ = learner.forward(state.parameters, state.buffers, held_out.inputs, training=False)
    features = judged.features.detach()

    def output(head: Tensor, features: Tensor) -> tuple[Output, Tensor]:
        matrix = head[: weight.numel()].view_as(weight)
        offset = head[weight.numel() :] if bias is not None else None
        return Output(F.linear(features, matrix, offset), features), matrix

    def loss(head: Tensor, outer: Tensor, step: int) -> Tensor:
        shown, matrix = output(head, seen.features)
        return method.inner_loss(Trained(shown, batch.labels, matrix), outer, numbers)

    def judge(head: Tensor, outer: Tensor) -> Tensor:
        return method.outer_loss(output(head, features)[0], held_out.labels, numbers)

    start = torch.cat([weight.flatten(), *([] if bias is None else [bias])]).detach()
    return _problem(loss, numbers), judge, start


def _all_ahead(
    method: MetaMethod,
    learner: Learner,
    state: TrainState,
    batch: Batch,
    held_out: Part,
    seen: Output,
    numbers: Numbers,
    masks: Tensor,
) -> _Ahead:
    """Look ahead on every parameter; the batch statistics of this pass are discarded."""

    def loss(parameters: Tensor, outer: Tensor, step: int) -> Tensor:
        with replayed(masks, "real"):
            shown, _ = learner.forward(parameters, state.buffers, batch.inputs, training=True)
        trained = Trained(shown, batch.labels, _head(learner, parameters)[0])
        return method.inner_loss(trained, outer, numbers)

    def judge(parameters: Tensor, outer: Tensor) -> Tensor:
        shown, _ = learner.forward(parameters, state.buffers, held_out.inputs, training=False)
        return method.outer_loss(shown, held_out.labels, numbers)

    return _problem(loss, numbers, learner.grouped(_PLAIN)), judge, state.parameters


def _head(learner: Learner, parameters: Tensor) -> tuple[Tensor, Tensor | None]:
    """Weight (K, d) and bias of the last layer. Raises ``ValueError`` if it is not linear."""
    views = learner.model.unflatten(parameters)
    head = [views[name] for name in learner.model.head]
    matrices = [view for view in head if view.dim() == 2 and len(view) == learner.classes]
    vectors = [view for view in head if view.dim() == 1]
    if len(matrices) != 1 or len(matrices) + len(vectors) != len(head):
        raise ValueError(
            "meta-learned methods need a network whose last layer is an nn.Linear to the "
            f"{learner.classes} classes; found {', '.join(learner.model.head)}"
        )
    return matrices[0], vectors[0] if vectors else None
