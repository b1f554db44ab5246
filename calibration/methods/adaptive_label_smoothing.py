"""Label smoothing whose ε depends on the prediction's confidence or the class's difficulty.

Surveys of calibrated training name both ideas without fixing a formula (Adaptive and
Conditional Label Smoothing, Park et al. 2023, and Class Adaptive Label Smoothing, Liu et al.
2023, learn theirs in heavier ways). Here both have the same simple form,
ε_i = ε · r_i^strength with r_i in [0, 1]: ε is the smoothing where r = 1, and strength 0 is
ordinary label smoothing.
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from calibration.complexity import MethodComplexity
from calibration.hyperparameters import Uniform
from calibration.methods.descent import Records, descend
from calibration.methods.focal import log_probability_of_label
from calibration.methods.label_smoothing import smoothed_cross_entropy
from calibration.methods.method import (
    METHODS,
    Batch,
    Learner,
    Method,
    MethodHyperparameters,
    Numbers,
    TrainState,
)
from calibration.models import Output

DECAY = 0.99
"""The weight of a class's old difficulty after one more sample: a memory of 100 samples."""


class AdaptiveLabelSmoothingHyperparameters(MethodHyperparameters):
    """``epsilon``: the largest smoothing; ``strength``: how fast it decreases towards 0."""

    epsilon: Annotated[float, Field(ge=0, lt=1), Uniform(0.0, 0.3)] = 0.1
    strength: Annotated[float, Field(ge=0, le=10), Uniform(0.0, 3.0)] = 1.0


def confident_epsilon(logits: Tensor, epsilon: Tensor, strength: Tensor) -> Tensor:
    """ε · r^strength per sample, r = (max p − 1/K) / (1 − 1/K); carries no gradient."""
    chance = 1 / logits.shape[-1]
    confidence = logits.detach().softmax(dim=-1).amax(dim=-1)
    relative = ((confidence - chance) / (1 - chance)).clamp_min(0)
    return epsilon * relative**strength


@METHODS.register("confidence_label_smoothing")
class ConfidenceLabelSmoothing(Method):
    """Label smoothing with ε_i = ε · ((max p_i − 1/K) / (1 − 1/K))^strength.

    The more confident a prediction, the softer its target; no gradient flows through ε_i. The
    formula is our own: Park et al. 2023 learn theirs.
    """

    description = "label smoothing that grows with the prediction's confidence"
    complexity = MethodComplexity.ROWS
    Hyperparameters = AdaptiveLabelSmoothingHyperparameters

    def step(
        self,
        learner: Learner,
        state: TrainState,
        batch: Batch,
        numbers: Numbers,
        generator: torch.Generator,
    ) -> tuple[TrainState, Records]:
        """One optimiser step on the mean cross-entropy against the smoothed targets."""

        def loss(output: Output) -> tuple[Tensor, Records]:
            epsilon = confident_epsilon(output.logits, numbers["epsilon"], numbers["strength"])
            losses = smoothed_cross_entropy(output.logits, batch.labels, epsilon)
            return losses.mean(), {"epsilon": epsilon.mean()}

        return descend(learner, state, batch.inputs, numbers, loss)


def updated_difficulty(difficulty: Tensor, p_label: Tensor, labels: Tensor) -> Tensor:
    """The running mean of 1 − p_y of each class after one more batch.

    d_k ← w d_k + (1 − w) · mean of 1 − p_y over the n_k samples of class k, w = DECAY^n_k:
    the memory is counted in samples, so that it is the same at every batch size, and a class
    that the batch lacks keeps its value.
    """
    none = p_label.new_zeros(len(difficulty))
    counts = none.scatter_add(0, labels, torch.ones_like(p_label))
    means = none.scatter_add(0, labels, 1 - p_label) / counts.clamp_min(1)
    return torch.lerp(means, difficulty.to(p_label), DECAY**counts)


def class_epsilon(difficulty: Tensor, epsilon: Tensor, strength: Tensor) -> Tensor:
    """ε · (d_k / max_j d_j)^strength per class."""
    return epsilon * (difficulty / difficulty.amax().clamp_min(1e-12)) ** strength


@METHODS.register("class_label_smoothing")
class ClassLabelSmoothing(Method):
    """Label smoothing with ε_k = ε · (d_k / max_j d_j)^strength for samples of class k.

    d_k is the running mean of 1 − p_y over the training samples of class k, with a memory of
    about 100 samples of that class; it starts at 1 for all classes, as in plain smoothing. The
    hardest class is smoothed by ε, easier ones by less. The formula is our own: Liu et al. 2023
    learn theirs.
    """

    description = "label smoothing per class, more for classes that are hard to learn"
    complexity = MethodComplexity.BATCH
    Hyperparameters = AdaptiveLabelSmoothingHyperparameters

    def initial(self, learner: Learner, parameters: Tensor) -> dict[str, Tensor]:
        """Every class equally difficult."""
        return {"difficulty": parameters.new_ones(learner.classes)}

    def step(
        self,
        learner: Learner,
        state: TrainState,
        batch: Batch,
        numbers: Numbers,
        generator: torch.Generator,
    ) -> tuple[TrainState, Records]:
        """One optimiser step with the current ε, then the new difficulties."""
        difficulty = state.method["difficulty"]
        per_class = class_epsilon(difficulty, numbers["epsilon"], numbers["strength"])

        def loss(output: Output) -> tuple[Tensor, Records]:
            losses = smoothed_cross_entropy(output.logits, batch.labels, per_class[batch.labels])
            p_label = log_probability_of_label(output.logits, batch.labels).exp()
            return losses.mean(), {"p_label": p_label}

        state, records = descend(learner, state, batch.inputs, numbers, loss)
        difficulty = updated_difficulty(difficulty, records.pop("p_label"), batch.labels)
        return state._replace(method={"difficulty": difficulty}), records
