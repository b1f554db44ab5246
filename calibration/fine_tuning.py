"""How long a pretrained network below the head stays frozen, and what a step trains meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, replace

from calibration.methods import Learner, Method
from calibration.models import FunctionalModel
from calibration.training_config import TrainingConfig


@dataclass(frozen=True)
class Surroundings:
    """What steps are given: ``head`` while the backbone is frozen, ``full`` from then on."""

    head: Learner
    full: Learner
    held_epochs: int

    def at(self, epoch: int) -> Learner:
        """The ``Learner`` for the steps of this epoch."""
        return self.head if epoch < self.held_epochs else self.full


def surroundings(
    method: Method, config: TrainingConfig, model: FunctionalModel, *, classes: int, samples: int
) -> Surroundings:
    """The surroundings of a method's steps; without a backbone, no epoch freezes one."""
    chosen = method.hyperparameters
    full = Learner(
        model,
        config.make_optimiser(),
        classes,
        samples=samples,
        mixed_precision=config.mixed_precision,
        backbone_lr=chosen.backbone_lr,
    )
    head, full = (
        replace(part, optimiser=config.make_optimiser(part.grouped))
        for part in (replace(full, held=True), full)
    )
    frozen = chosen.freeze_epochs if chosen.backbone_lr else config.epochs
    return Surroundings(head, full, min(frozen, config.epochs) if model.backbone else 0)
