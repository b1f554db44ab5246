"""Each class's probability against its rows, for diagrams and tables of classes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibration.metrics.floor import effects_of_groups
from calibration.metrics.one_vs_rest import ranked_class_of
from calibration.metrics.predictions import Predictions
from calibration.metrics.rare import rarest_class
from calibration.metrics.top_label import ace_of

MOST_DRAWN = 8
MOST_LISTED = 50
MOST_BINS = 10
LEAST_EXPECTED = 5.0
_Floats = NDArray[np.float64]


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


class ClassBins(NamedTuple):
    """Bins of a class's probability: rows, mean probability, share of the class, each (M).

    ``effect`` is the factor by which groups raise the variance of the share.
    """

    rows: _Floats
    mean: _Floats
    share: _Floats
    effect: _Floats


class ClassView(NamedTuple):
    """The classes of a row, rarest first, and the bins of those drawn."""

    summaries: list[ClassSummary]
    drawn: dict[int, ClassBins]

    @property
    def tables(self) -> tuple[Tensor, Tensor]:
        """Both as float64: a line per class; a line per bin, beginning with the class number."""
        lines = [
            (float(number), *values)
            for number, bins in self.drawn.items()
            for values in zip(*bins, strict=True)
        ]
        listed, binned = (
            torch.tensor(np.array(values, dtype=np.float64)) for values in (self.summaries, lines)
        )
        return listed, binned

    @classmethod
    def of(cls, listed: Tensor, binned: Tensor) -> ClassView:
        """The view with these ``tables``."""
        summaries = [
            ClassSummary(int(number), int(rows), *values)
            for number, rows, *values in listed.tolist()
        ]
        numbers = [int(number) for number in dict.fromkeys(binned[:, 0].tolist())]
        of_class = {number: binned[binned[:, 0] == number, 1:].T for number in numbers}
        return cls(summaries, {number: ClassBins(*of_class[number].numpy()) for number in numbers})


@torch.no_grad()
def class_view(
    predictions: Predictions, bins: int, groups: Tensor | None = None
) -> ClassView | None:
    """The classes of probability rows; None for a calibrator without probabilities.

    Of two classes the rarer is drawn: the other is its mirror image. Classes without rows are
    omitted; if there are very many, all except the rarest are. ``bins`` are those of the ECE.
    Rows count equally, whatever their weights.
    """
    if not predictions.has_rows:
        return None
    if predictions.weights is not None:
        predictions = predictions.reweighted(None)
    output, labels = predictions.rows
    counts = torch.bincount(labels, minlength=output.shape[1])
    there = [k for k in counts.argsort(stable=True).tolist() if counts[k]]
    summaries = [_summary(predictions, k, bins) for k in there[:MOST_LISTED]]
    two = output.shape[1] == 2
    drawn = [rarest_class(labels, 2)] if two else there[:MOST_DRAWN]
    return ClassView(summaries, {k: class_bins(output[:, k], labels == k, groups) for k in drawn})


def class_bins(probability: Tensor, positive: Tensor, groups: Tensor | None = None) -> ClassBins:
    """Bins with about equally many expected rows of the class (Σp) in each.

    Bins of equal width or of equal mass put nearly all positives of a rare class into one bin.
    There are at most ten bins, and fewer if one would have fewer than five expected rows. The bin
    edges do not depend on the labels; rows of equal probability stay together.
    """
    level, tied = probability.double().unique(return_inverse=True)
    size = torch.bincount(tied).double()
    mass = (size * level).cumsum(0)
    total = float(mass[-1])
    bins = int(min(MOST_BINS, max(1.0, total // LEAST_EXPECTED)))
    middle = mass - size * level / 2
    place = (middle / max(total, 1e-300) * bins).long().clamp(0, bins - 1)[tied]
    exact, hit = probability.double(), positive.double()
    effect = torch.ones(bins, dtype=torch.float64)
    if groups is not None:
        effect = effects_of_groups(exact - hit, place, groups, bins)
    rows = torch.bincount(place, minlength=bins).double()
    expected, found = (torch.bincount(place, v, minlength=bins) for v in (exact, hit))
    full = rows > 0
    means = (values[full] / rows[full] for values in (expected, found))
    return ClassBins(*(values.cpu().numpy() for values in (rows[full], *means, effect[full])))


def _summary(predictions: Predictions, number: int, bins: int) -> ClassSummary:
    output, labels = predictions.rows
    probability, positive = output[:, number], labels == number
    ranked = ranked_class_of(predictions, number)
    return ClassSummary(
        number,
        int(positive.sum()),
        float(positive.double().mean()),
        float(probability.double().mean()),
        float(ace_of(Predictions(None, (probability, positive)), bins)),
        float(ranked.auroc),
        float(ranked.average_precision),
    )
