"""Class-wise calibration errors: every class's probability against [y = k], all N samples.

Functions take probabilities (..., N, K) and labels (..., N), return a float64 tensor of the
batch shape and raise ``ValueError`` on malformed input.
"""

from __future__ import annotations

import torch
from torch import Tensor

from calibration.metrics.binning import (
    BinSums,
    mass_sums,
    width_index,
)
from calibration.metrics.checks import Data, check_count
from calibration.metrics.chunks import row_chunks
from calibration.metrics.cpu import positions_above
from calibration.metrics.predictions import Predictions

# Blocks are only searched; what is found is an order of magnitude smaller, near chunks.ELEMENTS.
SEARCHED_ELEMENTS = 2**18


@torch.no_grad()
def classwise_ece(probabilities: Data, labels: Data, *, bins: int = 15) -> Tensor:
    """Mean over classes k of Σ_m (n_mk/N)·|freq_mk - mean p_mk| over equal-width bins of p_k.

    Kull et al. 2019 (static calibration error, Nixon et al. 2019).
    """
    return classwise_ece_of(Predictions.of_rows(probabilities, labels), check_count(bins, "bins"))


def classwise_ece_of(predictions: Predictions, bins: int) -> Tensor:
    """``classwise_ece`` of checked predictions."""
    sums = classwise_sums(predictions, bins)
    return (sums.share * sums.gap.abs()).sum(-1).mean(-1)


@torch.no_grad()
def classwise_ace(probabilities: Data, labels: Data, *, bins: int = 15) -> Tensor:
    """Mean over classes of the equal-mass binned error of p_k against [y = k].

    The adaptive calibration error of Nixon et al. 2019; it is not ``ace``.
    """
    return classwise_ace_of(Predictions.of_rows(probabilities, labels), check_count(bins, "bins"))


def classwise_ace_of(predictions: Predictions, bins: int) -> Tensor:
    """``classwise_ace`` of checked predictions."""
    probabilities, labels = predictions.rows
    total = torch.zeros(labels.shape[:-1], dtype=torch.float64, device=labels.device)
    classes = probabilities.shape[-1]
    for k in range(classes):  # one class at a time: a sorted copy of all would be 2-3 inputs large
        alone = Predictions(None, (probabilities[..., k], labels == k), weights=predictions.weights)
        sums = mass_sums(alone.ranked, bins)
        total += (sums.share * sums.gap.abs()).sum(-1)
    return total / classes


def classwise_sums(predictions: Predictions, bins: int) -> BinSums:
    """Sums per class and equal-width bin, (..., K, M): confidence is p_k, correct [y = k]."""
    probabilities, labels = predictions.rows
    *batch, samples, classes = probabilities.shape
    rows = probabilities.reshape(-1, samples, classes)
    pieces = zip(
        rows,
        labels.reshape(-1, samples),
        predictions.label_probability.reshape(-1, samples),
        predictions.moments[0].reshape(-1, classes),
        strict=True,
    )
    parts = zip(*(_sums(*piece, bins, predictions.weights) for piece in pieces), strict=True)
    return BinSums(*(torch.stack(part).view(*batch, classes, bins) for part in parts))


def _sums(
    rows: Tensor,
    labels: Tensor,
    true: Tensor,
    columns: Tensor,
    bins: int,
    weights: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The fields of ``classwise_sums`` for one batch element: rows (N, K) to sums (K, M).

    A row sums to 1, so at most a few of its entries are above the first bin. Only those are
    binned one by one; the first bin is what remains of each column.
    """
    samples, classes = rows.shape
    cells = classes * bins
    count = rows.new_zeros(cells, dtype=torch.float64)
    total = torch.zeros_like(count)
    # A margin below the edge: the comparison uses the rows' own, possibly low, precision.
    threshold = 0.98 / bins
    chunks = list(row_chunks(samples, classes, SEARCHED_ELEMENTS))
    first_cell = torch.arange(0, cells, bins, device=rows.device).repeat(chunks[0].stop)
    for chunk in chunks:
        block = rows[chunk].reshape(-1)
        position = positions_above(block, threshold)
        values = block.index_select(0, position)
        index = width_index(values, bins).add_(first_cell.index_select(0, position))
        weight = None if weights is None else weights[chunk][position // classes]
        mass = values.double() if weight is None else values.double() * weight
        count += torch.bincount(index, weight, minlength=cells)
        total += torch.bincount(index, weights=mass, minlength=cells)
    hits = torch.bincount(labels * bins + width_index(true, bins), weights, minlength=cells)
    count, total = count.view(classes, bins), total.view(classes, bins)
    count[:, 0] = samples - count[:, 1:].sum(-1)
    total[:, 0] = (columns - total[:, 1:].sum(-1)).clamp(min=0)
    return count, total, hits.double().view(classes, bins)
