"""The training settings of a sweep: how long and with what settings networks are trained."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from calibration.augmentation import EIGHT_BITS_ONLY, Augmentation
from calibration.hyperparameters import Settings
from calibration.kernels import Kernels
from calibration.optimiser_steps import Averaged, Clipped
from calibration.optimisers import Optimiser, make_optimiser


def _one_optimiser(written: object) -> object:
    if isinstance(written, list | tuple | dict):
        raise ValueError(
            "one name is expected; to search for an optimiser, list them in a row of 'methods', "
            "e.g. standard: {optimiser: [adam, sgd]}"
        )
    return written


class TrainingConfig(Settings):
    """How long and with what settings every method of a sweep trains."""

    epochs: Annotated[int, Field(ge=1)] = 100
    batch_size: Annotated[int, Field(ge=1)] | Literal["full"] = 128
    optimiser: Annotated[str, BeforeValidator(_one_optimiser)] = "adam"
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    clip_norm: Annotated[float, Field(gt=0)] | None = None
    ema_decay: Annotated[float, Field(gt=0, lt=1)] | None = None
    warmup_epochs: Annotated[int, Field(ge=0)] = 0
    schedule: Literal["constant", "step", "cosine"] = "constant"
    milestones: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = (0.43, 0.71)
    decay: Annotated[float, Field(gt=0, lt=1)] = 0.1
    augmentation: (
        Literal["none"] | Augmentation | Annotated[tuple[Augmentation, ...], Field(min_length=1)]
    ) = "none"
    stop_on: Literal["none", "nll", "refinement", "error"] = "nll"
    stop_ties: Literal["nll", "latest"] = "nll"
    patience: Annotated[int, Field(ge=1)] | None = None
    evaluate_every: Annotated[int, Field(ge=1)] = 1
    mixed_precision: bool = False
    threads: Annotated[int, Field(ge=1, le=1024)] = 1
    kernels: Kernels = "default"
    channels_last: bool = False
    reliability_snapshots: Annotated[int, Field(ge=0, le=50)] = 0

    @field_validator("milestones")
    @classmethod
    def _increasing(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if list(value) != sorted(set(value)):
            raise ValueError("milestones must increase, e.g. [0.43, 0.71] of all epochs")
        return value

    @model_validator(mode="after")
    def _patience_covers_an_evaluation(self) -> Self:
        if self.patience is not None and self.patience < self.evaluate_every:
            raise ValueError(
                f"patience {self.patience} must be at least evaluate_every {self.evaluate_every}"
            )
        return self

    def lr_factor(self, epoch: int) -> float:
        """The factor on the learning rate in ``epoch`` (counted from 0)."""
        progress = epoch / self.epochs
        factor = min(1.0, (epoch + 1) / (self.warmup_epochs + 1))
        if self.schedule == "cosine":
            return factor * 0.5 * (1 + math.cos(math.pi * progress))
        if self.schedule == "step":
            return factor * float(self.decay ** sum(progress >= m for m in self.milestones))
        return factor

    @property
    def augmentations(self) -> tuple[Augmentation, ...]:
        """The augmentations of training images, in order."""
        if self.augmentation == "none":
            return ()
        return (self.augmentation,) if isinstance(self.augmentation, str) else self.augmentation

    def named_optimiser(self) -> Optimiser:
        """The optimiser without wrappers. Raises ``ValueError`` if the name is unknown."""
        return make_optimiser(self.optimiser, self.momentum)

    def make_optimiser(
        self, grouped: Callable[[Optimiser], Optimiser] = lambda alone: alone
    ) -> Optimiser:
        """The optimiser of the network's own parameters, with clipping and averaging.

        ``grouped`` gives groups of parameters their own rates. The gradient is clipped as a whole.
        """
        made = grouped(self.named_optimiser())
        if self.clip_norm is not None:
            made = Clipped(made, self.clip_norm)
        return made if self.ema_decay is None else Averaged(made, self.ema_decay)


def check_augmentations(config: TrainingConfig) -> None:
    """Raise ``ValueError`` for augmentations of 8-bit images, for inputs of another type."""
    for name in config.augmentations:
        if name in EIGHT_BITS_ONLY:
            raise ValueError(
                f"augmentation {name!r} works on images of 8 bits (uint8), and these are of "
                "other numbers; use crop, flip or cutout, or store them as uint8"
            )
