"""The interface of trainings, which the engine carries out in blocks."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from calibration.data import Column, Part, Splits
from calibration.learners.estimator import Estimator
from calibration.learners.estimator_training import EstimatorTraining
from calibration.methods import Method
from calibration.training import TrainingRun
from calibration.training_config import TrainingConfig


class Training(Protocol):
    """Something being trained on one split, an epoch (or a round of boosting) at a time.

    ``curve`` has a row for every epoch so far; ``predict`` uses the best one, ``best_epoch``. Saved
    with ``state_dict`` and loaded into a new training of the same configuration, it continues
    exactly as if it had never stopped. The trained model is stored by ``network`` and
    ``load_network`` (tensors) or by ``files`` and ``load_files`` (bytes in a library's format).
    """

    validation: Part
    epoch: int
    seconds: float
    curve: list[dict[str, float]]
    best_epoch: int

    @property
    def done(self) -> bool:
        """Whether training is complete."""

    @property
    def diverged(self) -> bool:
        """Whether the last epoch gave an infinite value or NaN."""

    def run_epoch(self) -> dict[str, float]:
        """Train one epoch and return its row of the curve."""

    def predict(self, part: Part) -> Tensor:
        """Logits of the best epoch for raw inputs, on the CPU."""

    def predict_validation(self) -> Tensor:
        """Logits of the best epoch for the validation part, on the CPU."""

    def history(self) -> dict[str, Tensor]:
        """Records of the course of training that are worth keeping."""

    def reliability(self) -> dict[str, Tensor]:
        """Validation confidence and correctness during training, if requested."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes, as tensors and plain values."""

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue from a ``state_dict``. Raises ``ValueError`` for anything else."""


def begin(
    learner: Method | Estimator,
    splits: Splits,
    *,
    columns: tuple[Column, ...],
    classes: int,
    config: TrainingConfig,
    seed: int,
    model: str = "",
    model_options: dict[str, Any] | None = None,
    device: str = "cpu",
) -> TrainingRun | EstimatorTraining:
    """A training before its first epoch; ``model`` and ``device`` apply to networks only."""
    if isinstance(learner, Estimator):
        return EstimatorTraining(
            learner, splits, columns=columns, classes=classes, config=config, seed=seed
        )
    return TrainingRun(
        learner,
        splits,
        model=model,
        model_options=model_options or {},
        classes=classes,
        config=config,
        seed=seed,
        device=device,
    )
