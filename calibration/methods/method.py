"""The interface of training methods: typed hyperparameters and a pure training step.

A method receives everything through the arguments of ``step`` and returns new values.
Its state between steps (sample weights, a meta-network) is in ``TrainState.method``
as named tensors, so that a checkpoint is a plain copy of values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from pydantic import (
    AfterValidator,
    Field,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
)
from torch import Tensor

from calibration.bfloat16 import bfloat16_kernels
from calibration.complexity import MethodComplexity
from calibration.data import Part
from calibration.data.encodings import NumericInputs
from calibration.hyperparameters import Hyperparameters, LogUniform, Value, When
from calibration.models import FunctionalModel, Output
from calibration.models.dense import Dense
from calibration.optimiser_steps import TwoRates
from calibration.optimisers import Optimiser, OptimiserState, make_optimiser
from calibration.registry import Registry

METHODS: Registry[type[Method]] = Registry("method", "calsweep.methods")

Numbers = dict[str, Tensor]
"""The real-valued hyperparameters as 0-dim tensors; ``lr`` already follows the schedule.

The trainer adds ``progress``, the completed share of all epochs.
"""


class BackboneHyperparameters(Hyperparameters):
    """How a pretrained network is fine-tuned; searched only if a spec says so.

    ``backbone_lr``: its learning rate, as a multiple of the head's ``lr``. ``freeze_epochs``: for
    how many epochs only the head is trained. While frozen, and always at rate 0, a backbone runs
    in evaluation mode, and neither its weights nor its batch normalisation statistics change.
    """

    backbone_lr: Annotated[float, Field(ge=0, le=100)] = 0.1
    freeze_epochs: Annotated[int, Field(ge=0, le=100_000)] = 0


class InputHyperparameters(Hyperparameters):
    """How a table's columns enter the network; searched only if a spec says so.

    ``numeric_inputs``: standardised; ``robust``, by quartiles with smooth clipping; ``quantile``,
    every column made normal; ``piecewise``, a piecewise-linear encoding between ``input_bins`` + 1
    quantiles. ``category_embedding``: the length of the vector learned for each category of a
    column with more categories than that; 0: one-hot.
    """

    numeric_inputs: NumericInputs = "standard"
    input_bins: Annotated[int, Field(ge=2, le=1000), When("numeric_inputs", "piecewise")] = 32
    category_embedding: Annotated[int, Field(ge=0, le=1000)] = 0


def _known_optimiser(name: str) -> str:
    make_optimiser(name, momentum=0.0)
    return name


class MethodHyperparameters(InputHyperparameters, BackboneHyperparameters):
    """The hyperparameters every method has, whatever its loss."""

    lr: Annotated[float, Field(gt=0, le=10), LogUniform(1e-3, 1e-1)] = 0.01
    weight_decay: Annotated[float, Field(ge=0, le=1), LogUniform(1e-6, 1e-2)] = 0.0
    optimiser: Annotated[
        Annotated[str, AfterValidator(_known_optimiser)] | None, WithJsonSchema({"type": "string"})
    ] = None

    @model_serializer(mode="wrap")
    def _those_in_use(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit them at their defaults: such trials keep the keys from before they existed."""
        unused = {
            name: field.default
            for kind in (InputHyperparameters, BackboneHyperparameters)
            for name, field in kind.model_fields.items()
        }
        if self.numeric_inputs == "piecewise":
            del unused["input_bins"]
        written: dict[str, Any] = write(self)
        return {n: v for n, v in written.items() if n not in unused or v != unused[n]}


class TrainState(NamedTuple):
    """Everything that changes while a network is trained, as plain tensors."""

    parameters: Tensor
    buffers: dict[str, Tensor]
    optimiser: OptimiserState
    method: dict[str, Tensor]


class Batch(NamedTuple):
    """Prepared inputs, labels and the rows' positions in the training set.

    ``held_out`` is a batch of meta-validation data for methods that learn from it, ``drawn``
    the result of ``Method.draw`` for the window that begins here, ``phase`` that of
    ``Method.phase`` for the epoch.
    """

    inputs: Tensor
    labels: Tensor
    rows: Tensor
    held_out: Part | None = None
    drawn: dict[str, Tensor] | None = None
    phase: str = ""


class Seen(NamedTuple):
    """The network's output on some rows in evaluation mode, and their labels."""

    output: Output
    labels: Tensor


@dataclass(frozen=True)
class Learner:
    """The fixed context of a training step: network, optimiser and problem size."""

    model: FunctionalModel
    optimiser: Optimiser
    classes: int
    samples: int
    mixed_precision: bool = False
    held: bool = False
    """Whether a pretrained network under the head is frozen."""
    backbone_lr: float = 1.0
    """Its learning rate otherwise, as a multiple of the head's."""

    def grouped(self, optimiser: Optimiser) -> Optimiser:
        """``optimiser`` with the rate of the backbone, if the network has one."""
        size = self.model.backbone
        return (
            TwoRates(optimiser, size, 0.0 if self.held else self.backbone_lr) if size else optimiser
        )

    @property
    def dense(self) -> Dense | None:
        """The hand-written network, if it gives the same numbers as ``forward``."""
        return None if self.mixed_precision else self.model.dense

    def forward(
        self, parameters: Tensor, buffers: dict[str, Tensor], inputs: Tensor, *, training: bool
    ) -> tuple[Output, dict[str, Tensor]]:
        """Apply the network; logits and features are returned in at least float32."""
        if not self.mixed_precision:
            return self.model.apply(parameters, buffers, inputs, training=training, held=self.held)
        # bfloat16 has float32's exponent range, so gradients need no loss scaling.
        autocast = torch.autocast(inputs.device.type, dtype=torch.bfloat16)
        with autocast, bfloat16_kernels(inputs.device):
            output, buffers = self.model.apply(
                parameters, buffers, inputs, training=training, held=self.held
            )
        return Output(output.logits.float(), output.features.float()), buffers


class Method(ABC):
    """A way to train a classifier.

    Subclasses set ``description`` (one line for listings), ``Hyperparameters`` and, if
    they learn from held-out data, ``needs_held_out``. ``version`` is part of every trial's
    key: increase it when a change alters results, or old records would be reused. ``complexity``
    decides between results that validation data cannot distinguish.
    """

    description: ClassVar[str]
    Hyperparameters: ClassVar[type[MethodHyperparameters]] = MethodHyperparameters
    complexity: ClassVar[int] = MethodComplexity.BILEVEL
    """Its place on the scale of ``MethodComplexity``; by default the highest."""
    version: ClassVar[int] = 1
    inference_state: ClassVar[tuple[str, ...]] = ()
    """The names in ``TrainState.method`` that ``map_logits`` needs."""
    read_by_the_host: ClassVar[tuple[str, ...]] = ()
    """The real-valued hyperparameters that a step takes from ``hyperparameters``, not ``numbers``.

    They are the same for all members of a cohort."""

    def __init__(self, hyperparameters: MethodHyperparameters) -> None:
        self.hyperparameters = hyperparameters

    @property
    def needs_held_out(self) -> bool:
        """Whether batches must include meta-validation data, given the hyperparameters."""
        return False

    @property
    def held_out_batch(self) -> int | None:
        """The number of meta-validation rows per batch; None: as many as the batch has."""
        return None

    @property
    def window(self) -> int:
        """The number of consecutive batches of an epoch that ``steps`` takes at once."""
        return 1

    @property
    def alone(self) -> str:
        """Why its networks cannot be trained in a cohort, in a few words; empty if they can."""
        return ""

    def draw(self, batches: Sequence[Batch], generator: torch.Generator) -> dict[str, Tensor]:
        """The random numbers for one call of ``steps``, passed to it as ``drawn``.

        Because they are drawn here and not inside a step, every member of a cohort has its own.
        The generator is on the CPU; ``calibration.transfer.sent`` sends tensors that a step
        needs to the batches' device.
        """
        return {}

    def phase(self, progress: float) -> str:
        """The branch that steps take after this share of all epochs, for steps that branch.

        A branch on the value of a tensor would wait for the device in every step.
        """
        return ""

    @property
    def shared(self) -> dict[str, Value]:
        """The hyperparameters that are the same for all members of a cohort."""
        by_the_host = {*self.read_by_the_host, *BackboneHyperparameters.model_fields}
        return {
            name: value
            for name, value in self.hyperparameters.model_dump(exclude_none=True).items()
            if not isinstance(value, float) or name in by_the_host
        }

    def numbers(self, *, dtype: torch.dtype, device: torch.device) -> Numbers:
        """The real-valued hyperparameters as tensors, to be passed to ``step``."""
        return {
            name: torch.tensor(value, dtype=dtype, device=device)
            for name, value in self.hyperparameters.model_dump().items()
            if isinstance(value, float)
        }

    def initial(self, learner: Learner, parameters: Tensor) -> dict[str, Tensor]:
        """The method's own state before the first step."""
        return {}

    @abstractmethod
    def step(
        self,
        learner: Learner,
        state: TrainState,
        batch: Batch,
        numbers: Numbers,
        generator: torch.Generator,
    ) -> tuple[TrainState, dict[str, Tensor]]:
        """One update: the new state, and 0-dim tensors to record (averaged over the epoch).

        One of them is called ``loss``. Draws randomness from ``generator`` only and changes
        no argument in place.
        """

    def steps(
        self,
        learner: Learner,
        state: TrainState,
        batches: Sequence[Batch],
        numbers: Numbers,
        generator: torch.Generator,
    ) -> tuple[TrainState, dict[str, Tensor]]:
        """Called by the trainer with up to ``window`` batches: by default a ``step`` on each.

        Logs are those of the last step.
        """
        logs: dict[str, Tensor] = {}
        for batch in batches:
            state, logs = self.step(learner, state, batch, numbers, generator)
        return state, logs

    def steps_together(
        self, learner: Learner, state: TrainState, batches: Sequence[Batch], numbers: Numbers
    ) -> tuple[TrainState, dict[str, Tensor]] | None:
        """``steps`` of K networks, everything stacked along a first dimension, if implemented.

        None: a cohort uses ``steps`` under ``torch.vmap``.
        """
        return None

    def end_epoch(
        self, learner: Learner, state: TrainState, held_out: Callable[[], Seen], numbers: Numbers
    ) -> TrainState:
        """Adapt to all of the held-out data between two epochs.

        ``held_out()`` runs the network on it, so it costs nothing unless it is called.
        """
        return state

    def map_logits(self, logits: Tensor, method_state: dict[str, Tensor]) -> Tensor:
        """The logits that predictions are made from, for methods that also learn a map."""
        return logits

    def describe(self, state: TrainState, validation: Seen, numbers: Numbers) -> dict[str, Tensor]:
        """0-dim tensors to record at every evaluation of validation data; learns nothing."""
        return {}

    def concerns(self, curve: Sequence[Mapping[str, float]], tried: int, steps: int) -> list[str]:
        """What a short try implies for the full training: one sentence per thing to change.

        ``curve`` is that of ``tried`` steps; the full training has ``steps``.
        """
        return []

    def snapshot(self, state: TrainState) -> dict[str, Tensor]:
        """Tensors whose history is worth keeping, such as one weight per training row."""
        return {}


def make_method(name: str, hyperparameters: dict[str, Any]) -> Method:
    """The method registered as ``name`` (or at an import path) with these hyperparameters.

    Raises ``UnknownNameError`` or ``SettingError``, both naming what is wrong.
    """
    kind = METHODS[name]
    return kind(kind.Hyperparameters.checked(hyperparameters, f"method {name!r}"))
