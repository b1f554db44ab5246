"""Methods that learn something about their own training on held-out data.

Every step (Luketina et al. 2016; Bohdal et al. 2021): look one gradient step of the inner
loss ahead, judge the looked-ahead network by the outer loss on a held-out batch, move the
outer variables along that hypergradient, and only then make the real step with the new
outer variables held constant. The outer loss's gradient ends in the outer variables: none
of it reaches the network's own update.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import AfterValidator, Field
from torch import Tensor
from torch.nn import functional as F

from calibration.bilevel import ENGINES, InnerLoss, InnerProblem, OuterLoss, make_engine
from calibration.complexity import MethodComplexity
from calibration.data import Part
from calibration.gradients import gradient
from calibration.hyperparameters import Hyperparameters, LogUniform
from calibration.methods.descent import moved
from calibration.methods.method import (
    Batch,
    Learner,
    Method,
    MethodHyperparameters,
    Numbers,
    TrainState,
)
from calibration.methods.side_variables import adam_step, side_variable
from calibration.models import Output
from calibration.optimisers import SGD
from calibration.seeds import seeded


def _known_engine(name: str) -> str:
    ENGINES[name]  # raises a ValueError that lists the names there are
    return name


EngineName = Annotated[str, AfterValidator(_known_engine)]


class EngineHyperparameters(Hyperparameters):
    """``engine``: how hypergradients are computed; ``engine_terms``: k of those that cut short."""

    engine: EngineName = "flat_unroll"
    engine_terms: Annotated[int, Field(ge=1, le=1000)] = 5


class MetaHyperparameters(EngineHyperparameters, MethodHyperparameters):
    """``outer_lr``: Adam's rate for the outer variables. ``lookahead``: which parameters the
    look-ahead step moves, those of the last layer or all (at the price of a second backward
    pass through the network).
    """

    outer_lr: Annotated[float, Field(gt=0, le=1), LogUniform(1e-4, 1e-2)] = 1e-3
    lookahead: Literal["head", "all"] = "head"


class Trained(NamedTuple):
    """What an inner loss may look at: the output on a batch, its labels, the last layer."""

    output: Output
    labels: Tensor
    head: Tensor


class MetaMethod(Method):
    """Subclasses say what is learned (``initial_outer``), how it enters the inner loss and
    by which outer loss it is judged.
    """

    complexity = MethodComplexity.BILEVEL
    hyperparameters: MetaHyperparameters

    @property
    def needs_held_out(self) -> bool:
        """The outer loss's data."""
        return True

    @abstractmethod
    def initial_outer(self, features: int, classes: int) -> Tensor:
        """The outer variables as one vector, for networks with that many penultimate features."""

    @abstractmethod
    def inner_loss(self, trained: Trained, outer: Tensor, numbers: Numbers) -> Tensor:
        """The mean training loss of a batch, as a function of the outer variables too."""

    @abstractmethod
    def outer_loss(self, output: Output, labels: Tensor, numbers: Numbers) -> Tensor:
        """What the outer variables are to make small on held-out data."""

    def start(self, outer: Tensor, output: Output, numbers: Numbers) -> Tensor:
        """The outer variables fitted to the first batch the network sees."""
        return outer

    def records(self, output: Output, outer: Tensor, numbers: Numbers) -> dict[str, Tensor]:
        """What to record of the outer variables in every step."""
        return {}

    def initial(self, learner: Learner, parameters: Tensor) -> dict[str, Tensor]:
        """The outer variables, their optimiser's moments, and that they have not started."""
        weight, _ = _head(learner, parameters)
        outer = self.initial_outer(weight.shape[1], weight.shape[0]).to(parameters)
        return side_variable("outer", outer) | {"started": parameters.new_zeros(())}

    def step(
        self,
        learner: Learner,
        state: TrainState,
        batch: Batch,
        numbers: Numbers,
        generator: torch.Generator,
    ) -> tuple[TrainState, dict[str, Tensor]]:
        """Move the outer variables by the look-ahead, then the network by the real step."""
        draw = int(torch.randint(2**31, (), generator=generator))

        def objective(parameters: Tensor) -> tuple[Tensor, _Found]:
            with seeded(draw, "real"):
                output, buffers = learner.forward(
                    parameters, state.buffers, batch.inputs, training=True
                )
            seen = Output(output.logits.detach(), output.features.detach())
            memory, outer_value = self._meta_step(learner, state, batch, seen, numbers, draw)
            outer = memory["outer"]
            trained = Trained(output, batch.labels, _head(learner, parameters)[0])
            loss = self.inner_loss(trained, outer, numbers)
            logs = {"loss": loss.detach(), "outer_loss": outer_value}
            return loss, (buffers, memory, logs | self.records(seen, outer, numbers))

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
        draw: int,
    ) -> tuple[dict[str, Tensor], Tensor]:
        """The outer variables and their moments after one Adam step, and the outer loss."""
        assert batch.held_out is not None, "the trainer provides what needs_held_out asks for"
        memory = state.method
        outer = memory["outer"]
        if not bool(memory["started"]):
            outer = self.start(outer, seen, numbers)
        ahead = _head_ahead if self.hyperparameters.lookahead == "head" else _all_ahead
        problem, judge, parameters = ahead(
            self, learner, state, batch, batch.held_out, seen, numbers, draw
        )
        engine = make_engine(self.hyperparameters.engine, self.hyperparameters.engine_terms)
        found = engine.hypergradient(
            problem, judge, parameters, problem.optimiser.initial(parameters), outer
        )
        memory = memory | {"outer": outer, "started": torch.ones_like(memory["started"])}
        return adam_step(memory, "outer", found.gradient, numbers["outer_lr"]), found.value


_Found = tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]
_Ahead = tuple[InnerProblem, OuterLoss, Tensor]


def _problem(loss: InnerLoss, numbers: Numbers) -> InnerProblem:
    """One plain gradient step; the network's own momentum takes no part in the look-ahead."""
    return InnerProblem(loss, SGD(momentum=0.0), numbers["lr"], numbers["weight_decay"], steps=1)


def _head_ahead(
    method: MetaMethod,
    learner: Learner,
    state: TrainState,
    batch: Batch,
    held_out: Part,
    seen: Output,
    numbers: Numbers,
    draw: int,
) -> _Ahead:
    """Look ahead on the last layer alone: features stay as they are, so nothing is recomputed."""
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
    draw: int,
) -> _Ahead:
    """Look ahead on every parameter; the batch statistics of this pass are discarded."""

    def loss(parameters: Tensor, outer: Tensor, step: int) -> Tensor:
        with seeded(draw, "real"):
            shown, _ = learner.forward(parameters, state.buffers, batch.inputs, training=True)
        trained = Trained(shown, batch.labels, _head(learner, parameters)[0])
        return method.inner_loss(trained, outer, numbers)

    def judge(parameters: Tensor, outer: Tensor) -> Tensor:
        shown, _ = learner.forward(parameters, state.buffers, held_out.inputs, training=False)
        return method.outer_loss(shown, held_out.labels, numbers)

    return _problem(loss, numbers), judge, state.parameters


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
