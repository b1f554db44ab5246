"""How well each class's probability ranks its own rows above the others.

AUROC and average precision depend only on the order of the probabilities: for two classes, no
strictly increasing calibrator changes them (isotonic regression does: it makes ties). Functions
take probabilities (..., N, K) and labels (..., N), return a float64 tensor of the batch shape and
raise ``ValueError`` on malformed input.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from calibration.metrics.checks import Data
from calibration.metrics.predictions import Predictions
from calibration.metrics.ranking import rank
from calibration.metrics.rare import rarest_class


class RankedClass(NamedTuple):
    """One class against the rest, by distinct probabilities from low to high: groups (G).

    ``positive`` and ``negative`` count the rows of each group, ``precision`` is the share of
    positives among rows at or above it, ``above`` the number of these; by weight, if rows have
    weights.
    """

    level: Tensor
    positive: Tensor
    negative: Tensor
    above: Tensor
    precision: Tensor

    @property
    def wins(self) -> Tensor:
        """The negatives ranked below a positive of each group, ties counting half (G)."""
        return self.negative.cumsum(0) - self.negative / 2

    @property
    def losses(self) -> Tensor:
        """The positives ranked above a negative of each group, ties counting half (G)."""
        return self.positive.sum() - self.positive.cumsum(0) + self.positive / 2

    @property
    def auroc(self) -> Tensor:
        """P(a positive is ranked above a negative) + P(tied)/2."""
        pairs = self.positive.sum() * self.negative.sum()
        return (self.positive * self.wins).sum() / pairs

    @property
    def average_precision(self) -> Tensor:
        """Σ over thresholds of the recall gained there times the precision there."""
        return (self.positive * self.precision).sum() / self.positive.sum()


def ranked_class(
    probability: Tensor, positive: Tensor, weights: Tensor | None = None
) -> RankedClass:
    """Rank probabilities (N) of a class whose rows are ``positive`` (N)."""
    if weights is not None:
        return _ranked_by_weight(probability.double(), positive, weights)
    ranked = rank(probability.double(), positive)
    level = ranked.confidence
    inner = (level[1:] != level[:-1]).nonzero().squeeze(-1) + 1
    ends = torch.cat([inner, inner.new_tensor([len(level)])])
    starts = torch.cat([inner.new_zeros(1), inner])
    hits = ranked.cumulative_correct
    found = hits[ends] - hits[starts]
    above = (len(level) - starts).double()
    return RankedClass(
        level[starts],
        found,
        (ends - starts).double() - found,
        above,
        (hits[-1] - hits[starts]) / above,
    )


def ranked_class_of(predictions: Predictions, number: int) -> RankedClass:
    """Class ``number`` of predictions without a batch, ranked once."""

    def ranked(predictions: Predictions) -> RankedClass:
        rows, labels = predictions.rows
        return ranked_class(rows[:, number], labels == number, predictions.weights)

    return predictions.shared(f"ranked class {number}", ranked)


def _ranked_by_weight(probability: Tensor, positive: Tensor, weights: Tensor) -> RankedClass:
    level, group = probability.unique(return_inverse=True)
    found = torch.bincount(group, weights * positive)
    rest = torch.bincount(group, weights * ~positive)
    above, hits = ((found + rest).flip(0).cumsum(0).flip(0), found.flip(0).cumsum(0).flip(0))
    # If nothing above has any weight, no threshold matters.
    reached = above.masked_fill(above == 0, 1)
    return RankedClass(level, found, rest, reached, hits / reached)


@torch.no_grad()
def auroc(probabilities: Data, labels: Data) -> Tensor:
    """Area under the ROC curve: the probability that a row of the class ranks above another row.

    Hanley & McNeil 1982; ties count half. For two classes there is one such area; for several it
    is the mean over classes, each against the rest (Provost & Domingos 2001, unweighted), without
    classes that have no row. NaN if all rows are of one class.
    """
    return auroc_of(Predictions.of_rows(probabilities, labels))


def auroc_of(predictions: Predictions) -> Tensor:
    """``auroc`` of checked predictions."""
    return _means(predictions)[..., 0]


@torch.no_grad()
def average_precision(probabilities: Data, labels: Data) -> Tensor:
    """Average precision: Σ_t (recall_t - recall_{t-1})·precision_t over distinct thresholds t.

    No interpolation (Davis & Goadrich 2006). For two classes it is that of the rarer, whose
    share is the value by chance; for several the mean over classes, each against the rest,
    without classes that have no row. NaN if all rows are of one class.
    """
    return average_precision_of(Predictions.of_rows(probabilities, labels))


def average_precision_of(predictions: Predictions) -> Tensor:
    """``average_precision`` of checked predictions."""
    return _means(predictions)[..., 1]


def _means(predictions: Predictions) -> Tensor:
    """AUROC and average precision (..., 2), computed together: sorting is most of the work."""
    return predictions.shared("one_vs_rest", _means_of)


def _means_of(predictions: Predictions) -> Tensor:
    rows, labels = predictions.rows
    if predictions.batch:
        each = [_means_of(Predictions(one, None)) for one in zip(rows, labels, strict=True)]
        return torch.stack(each)
    compared = compared_classes(labels, rows.shape[1], predictions.weights)
    if not compared:
        return rows.new_full((2,), torch.nan, dtype=torch.float64)
    ranked = [ranked_class_of(predictions, k) for k in compared]
    areas = [torch.stack([one.auroc, one.average_precision]) for one in ranked]
    return torch.stack(areas).mean(0)


def compared_classes(labels: Tensor, classes: int, weights: Tensor | None = None) -> list[int]:
    """The classes whose areas are averaged: the rarer of two, or all of several that occur.

    None where all rows are of one class.
    """
    there = torch.bincount(labels, weights, minlength=classes).nonzero().squeeze(-1).tolist()
    if len(there) < 2:
        return []
    return [rarest_class(labels, classes, weights)] if classes == 2 else there


def influences(predictions: Predictions) -> Tensor:
    """The effect of one more copy of a row on AUROC and average precision, to first order (N, 2).

    For AUROC these are the centred structural components of DeLong et al. 1988; for average
    precision the derivative with respect to the row's weight. They sum to 0, weighted if there
    are weights.
    """
    return predictions.shared("one_vs_rest_influences", _influences_of)


def _influences_of(predictions: Predictions) -> Tensor:
    probabilities, labels = predictions.rows
    samples, classes = probabilities.shape
    total = torch.zeros(samples, 2, dtype=torch.float64, device=labels.device)
    compared = compared_classes(labels, classes, predictions.weights)
    for k in compared:
        ranked = ranked_class_of(predictions, k)
        group = torch.searchsorted(ranked.level, probabilities[:, k].double().contiguous())
        of_positives, of_negatives = _derivatives(ranked)
        total += torch.where((labels == k)[:, None], of_positives[group], of_negatives[group])
    return total / max(1, len(compared))


def _derivatives(ranked: RankedClass) -> tuple[Tensor, Tensor]:
    """Those of both areas by the weight of a positive and a negative row of each group, (G, 2)."""
    hits, others = ranked.positive.sum(), ranked.negative.sum()
    area, precision = ranked.auroc, ranked.average_precision
    # A row lowers the precision at every threshold that accepts it, and raises it if positive.
    gained = (ranked.positive / ranked.above).cumsum(0)
    lost = (ranked.positive * ranked.precision / ranked.above).cumsum(0)
    positive = torch.stack(
        [
            (ranked.wins / others - area) / hits,
            (ranked.precision - precision + gained - lost) / hits,
        ],
        dim=-1,
    )
    negative = torch.stack([(ranked.losses / hits - area) / others, -lost / hits], dim=-1)
    return positive, negative
