"""The predicted class of each sample: its confidence, and whether it is right."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from calibration.objectives.objective import check_batch


class TopLabel(NamedTuple):
    """Probabilities (N, K), their maximum (N,) and 1 or 0 for right or wrong (N,)."""

    probabilities: Tensor
    confidence: Tensor
    correct: Tensor


def top_label(logits: Tensor, labels: Tensor) -> TopLabel:
    """Softmax, its largest entry and whether that is the label; ``correct`` has no gradient.

    Raises ``ValueError`` when the shapes are not (N, K) and (N,).
    """
    check_batch(logits, labels)
    probabilities = logits.softmax(dim=-1)
    confidence, predicted = probabilities.max(dim=-1)
    return TopLabel(probabilities, confidence, (predicted == labels).to(logits.dtype))
