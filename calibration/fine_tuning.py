"""How long a pretrained network under the head stays as it is, and what a step trains meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, replace

from calibration.methods import Learner, Method
from calibration.models import FunctionalModel
from calibration.training_config import TrainingConfig


@dataclass(frozen=True)
class Surroundings:
    """The surroundings of steps that leave a backbone as it is, and of those that do not."""

    head: Learner
    full: Learner
    held_epochs: int

    def at(self, epoch: int) -> Learner:
        """Those of the steps of this epoch."""
        return self.head if epoch < self.held_epochs else self.full


def surroundings(
    method: Method, config: TrainingConfig, model: FunctionalModel, *, classes: int, samples: int
) -> Surroundings:
    """Without a backbone no epoch holds one."""
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
