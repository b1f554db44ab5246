"""Each class's own probability against its rows: the data of the class diagrams."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from calibration.metrics.one_vs_rest import ranked_class
from calibration.metrics.predictions import Predictions
from calibration.metrics.rare import rarest_class
from calibration.metrics.row_scores import RowScores, labels_digest
from calibration.metrics.top_label import ace_of

MOST_DRAWN = 8
MOST_LISTED = 50


class ClassSummary(NamedTuple):
    """One class: its rows, its share, and the quality of its probability against the rest."""

    number: int
    rows: int
    share: float
    mean: float
    ece: float
    auroc: float
    average_precision: float

    @property
    def bias(self) -> float:
        """Mean probability minus share."""
        return self.mean - self.share


class ClassView(NamedTuple):
    """The classes of a row, rarest first, and (probability, is in class) of those drawn."""

    summaries: list[ClassSummary]
    drawn: dict[int, tuple[Tensor, Tensor]]


@torch.no_grad()
def class_view(output: Tensor, labels: Tensor, bins: int) -> ClassView | None:
    """The classes of probability rows (N, K); None for a calibrator without probabilities.

    Of two classes the rarer is drawn: the other is its mirror image. Classes without rows are
    omitted; if there are very many, all but the rarest are.
    """
    if output.ndim != 2:
        return None
    counts = torch.bincount(labels, minlength=output.shape[1])
    there = [k for k in counts.argsort(stable=True).tolist() if counts[k]]
    summaries = [_summary(output[:, k], labels == k, k, bins) for k in there[:MOST_LISTED]]
    two = output.shape[1] == 2
    drawn = [rarest_class(labels, 2)] if two else there[:MOST_DRAWN]
    return ClassView(summaries, {k: (output[:, k].double().clone(), labels == k) for k in drawn})


def class_view_of_scores(scores: RowScores, labels: Tensor | None, bins: int) -> ClassView | None:
    """The two classes, from the scores and labels of the test rows.

    A row's confidence belongs to its label if it is right, otherwise to the other class. None
    if there are more classes, no probabilities, or the labels are not those that were scored.
    """
    if labels is None or scores.nll is None or labels_digest(labels) != scores.labels:
        return None
    predicted = torch.where(scores.correct, labels, 1 - labels)
    confidence = scores.confidence.double()
    second = torch.where(predicted == 1, confidence, 1 - confidence)
    return class_view(torch.stack([1 - second, second], -1), labels, bins)


def _summary(probability: Tensor, positive: Tensor, number: int, bins: int) -> ClassSummary:
    ranked = ranked_class(probability, positive)
    return ClassSummary(
        number,
        int(positive.sum()),
        float(positive.double().mean()),
        float(probability.double().mean()),
        float(ace_of(Predictions(None, (probability, positive)), bins)),
        float(ranked.auroc),
        float(ranked.average_precision),
    )
