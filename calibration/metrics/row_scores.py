"""The scores of each test row, which are all that comparisons on new data need."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import torch
from torch import Tensor

from calibration.metrics.class_view import ClassView
from calibration.metrics.predictions import Predictions
from calibration.metrics.proper_scores import brier_losses, nll_losses

ROW_MEANS = ("nll", "brier", "error", "accuracy")
"""The metrics that are means over rows."""
COUNTED = ("error", "accuracy")
"""Those that count rows."""


class RowScores(NamedTuple):
    """One value per test row: float32, and bool of ``correct``.

    ``nll`` and ``brier`` are None for a calibrator without probability rows. ``labels`` is a
    digest of the rows' labels, which distinguishes sets of test rows; ``groups`` are those of the
    rows, as int64, None if there are none; ``weights`` how much they count, with a mean of 1, None
    if all are equal. ``classes`` are the tables of the ``ClassView``, which cannot be computed
    from these values; None without probability rows.
    """

    confidence: Tensor
    correct: Tensor
    nll: Tensor | None
    brier: Tensor | None
    labels: str
    groups: Tensor | None = None
    weights: Tensor | None = None
    classes: tuple[Tensor, Tensor] | None = None

    @property
    def class_view(self) -> ClassView | None:
        """Each class's reliability, if there are probabilities."""
        return None if self.classes is None else ClassView.of(*self.classes)

    def of(self, metric: str) -> Tensor | None:
        """Each row's contribution to a metric that is a mean over rows, float64; None if unknown.

        A weighted mean m is a ratio, Σ w x / Σ w, and both sums vary with the rows drawn: the
        contributions are then m + w (x − m), whose plain mean is m, and whose spread is that of
        the linearised ratio.
        """
        if metric in COUNTED:
            values = (self.correct if metric == "accuracy" else ~self.correct).double()
        else:
            found = {"nll": self.nll, "brier": self.brier}.get(metric)
            if found is None:
                return None
            values = found.double()
        if self.weights is None:
            return values
        mean = self.pairs.mean(values)
        return torch.where(self.weights > 0, mean + self.weights * (values - mean), mean)

    @property
    def pairs(self) -> Predictions:
        """Confidence and correctness, as the metrics take them."""
        pairs = self.confidence.double(), self.correct
        return Predictions(None, pairs, weights=self.weights)


@torch.no_grad()
def row_scores(
    output: Tensor,
    labels: Tensor,
    predicted: Tensor,
    groups: Tensor | None = None,
    weights: Tensor | None = None,
) -> RowScores:
    """The scores of probability rows, or of the confidences in the ``predicted`` classes."""
    rows = output.ndim == 2
    made = Predictions.of(output, labels if rows else predicted == labels, weights=weights)
    return RowScores(
        made.confidence.float(),
        made.correct,
        nll_losses(made).float() if rows else None,
        brier_losses(made).float() if rows else None,
        labels_digest(labels),
        groups,
        made.weights,
    )


def labels_digest(labels: Tensor) -> str:
    """A digest of the labels (N), which distinguishes one set of test rows from another."""
    return hashlib.sha256(labels.to(torch.int64).cpu().numpy().tobytes()).hexdigest()
