"""What each test row scored: all that comparisons about new data need of an evaluation."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import torch
from torch import Tensor

from calibration.metrics.predictions import Predictions
from calibration.metrics.proper_scores import brier_losses, nll_losses

ROW_MEANS = ("nll", "brier", "error", "accuracy")
"""The metrics that are means over rows."""
COUNTED = ("error", "accuracy")
"""Those that count rows."""


class RowScores(NamedTuple):
    """One value per test row: float32, and bool of ``correct``.

    ``nll`` and ``brier`` are None of a calibrator that gives no probability rows. ``labels`` is
    a digest of the rows' labels, by which two sets of test rows are told apart; ``groups`` are
    those that rows belong to, as int64, None if to none.
    """

    confidence: Tensor
    correct: Tensor
    nll: Tensor | None
    brier: Tensor | None
    labels: str
    groups: Tensor | None = None

    def of(self, metric: str) -> Tensor | None:
        """Each row's part of a metric that is a mean over rows, in float64; None if unknown."""
        if metric in COUNTED:
            return (self.correct if metric == "accuracy" else ~self.correct).double()
        found = {"nll": self.nll, "brier": self.brier}.get(metric)
        return None if found is None else found.double()

    @property
    def pairs(self) -> Predictions:
        """Confidence and correctness, as the metrics take them."""
        return Predictions(None, (self.confidence.double(), self.correct))


@torch.no_grad()
def row_scores(
    output: Tensor, labels: Tensor, predicted: Tensor, groups: Tensor | None = None
) -> RowScores:
    """The scores of probability rows, or of the confidences in the ``predicted`` classes."""
    rows = output.ndim == 2
    made = Predictions.of(output, labels if rows else predicted == labels)
    return RowScores(
        made.confidence.float(),
        made.correct,
        nll_losses(made).float() if rows else None,
        brier_losses(made).float() if rows else None,
        labels_digest(labels),
        groups,
    )


def labels_digest(labels: Tensor) -> str:
    """What tells one set of test rows from another: a digest of their labels (N)."""
    return hashlib.sha256(labels.to(torch.int64).cpu().numpy().tobytes()).hexdigest()
