"""Metrics as functions of sums over samples, which the bootstrap resamples.

Every calibration error here is a norm of a vector that is a sum of one feature vector per
sample: gaps per bin, cumulative gaps, smoothed gaps. Scores are means, a sum of one feature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from calibration.metrics.binning import BinSums, mass_marks, mass_ranks, width_index
from calibration.metrics.chunks import row_chunks
from calibration.metrics.cpu import positions_above
from calibration.metrics.predictions import Predictions
from calibration.metrics.ranking import Ranked
from calibration.metrics.smooth import cells_for, fixed_point, smoothers
from calibration.metrics.top_label import debiased_square, spread, sup_norm

# Points at which cumulative gaps are evaluated; more do not visibly change their extremes.
CUMULATIVE_POINTS = 200
RESAMPLED_ELEMENTS = 2**21


class Summed(NamedTuple):
    """A statistic of a sum over samples.

    ``sums`` gives the sums (R, D) of R resamples from the counts (R, N) of their samples;
    ``reduce`` turns sums (..., D) into the metric (...).
    """

    sums: Callable[[Tensor], Tensor]
    reduce: Callable[[Tensor], Tensor]


def dense(width: int, features: Callable[[slice], Tensor]) -> Callable[[Tensor], Tensor]:
    """Sums of features (n, width), which the function returns for a slice of the samples."""

    def sums(counts: Tensor) -> Tensor:
        resamples, samples = counts.shape
        total = torch.zeros(resamples, width, dtype=torch.float64, device=counts.device)
        for part in row_chunks(samples, max(width, resamples), RESAMPLED_ELEMENTS):
            total += counts[:, part].double() @ features(part)
        return total

    return sums


def mean_of(losses: Tensor) -> Summed:
    """The mean of one number per sample."""
    weights = losses[:, None] / len(losses)
    return Summed(dense(1, lambda part: weights[part]), lambda sums: sums.squeeze(-1))


def ece_features(predictions: Predictions, bins: int) -> Summed:
    """Gap per equal-width bin; ECE is the sum of their absolute values."""
    gap = signed_gap(predictions) / len(predictions.confidence)
    index = width_index(predictions.confidence, bins)
    return Summed(dense(bins, lambda part: one_hot(index[part], bins) * gap[part, None]), _l1)


def ace_features(predictions: Predictions, bins: int) -> Summed:
    """Gap per equal-mass bin, with the bins of the original sample."""
    gap = signed_gap(predictions) / len(predictions.confidence)
    member = mass_membership(predictions.ranked, predictions.confidence, bins)
    return Summed(dense(bins, lambda part: member(part) * gap[part, None]), _l1)


def classwise_ece_features(predictions: Predictions, bins: int, together: int) -> Iterator[Summed]:
    """Gap per class and equal-width bin, for ``together`` classes at a time.

    As in ``classwise_ece`` only the few entries above the first bin are binned one by one (a
    sparse product); the first bin is what remains of a class.
    """
    rows, labels = predictions.rows
    samples, classes = rows.shape
    scale = samples * classes
    position = positions_above(rows.reshape(-1), 0.98 / bins)
    sample, label = position // classes, position % classes
    values = rows[sample, label]
    weights = (values.double() - (labels[sample] == label).double()) / scale
    index = label * bins + width_index(values, bins)
    for first in range(0, classes, together):
        end = min(first + together, classes)
        inside = slice(None) if end - first == classes else (label >= first) & (label < end)
        cells = torch.stack([index[inside] - first * bins, sample[inside]])
        shape = ((end - first) * bins, samples)
        upper = torch.sparse_coo_tensor(cells, weights[inside], shape, check_invariants=False)
        yield _classwise_block(rows[:, first:end], labels - first, upper, scale)


def _classwise_block(rows: Tensor, labels: Tensor, upper: Tensor, scale: int) -> Summed:
    """``classwise_ece_features`` of some classes (N, k); labels outside 0…k−1 belong to others."""
    samples, classes = rows.shape
    own = torch.arange(classes, device=rows.device)
    whole = dense(
        classes, lambda part: (rows[part].double() - (labels[part, None] == own).double()) / scale
    )

    def sums(counts: Tensor) -> Tensor:
        parts = counts.split(max(1, RESAMPLED_ELEMENTS // samples))
        flat = torch.cat([torch.sparse.mm(upper, part.t().double()).t() for part in parts])
        found = flat.unflatten(-1, (classes, -1))
        found[..., 0] = whole(counts) - found[..., 1:].sum(-1)
        return flat

    return Summed(sums, _l1)


def ks_features(predictions: Predictions, bins: int) -> Summed:
    """Gap per narrow cell of confidence; KS is the extreme of their cumulative sum."""
    return _cumulative_features(predictions, sup_norm)


def kuiper_features(predictions: Predictions, bins: int) -> Summed:
    """Gap per narrow cell of confidence; Kuiper is the spread of their cumulative sum."""
    return _cumulative_features(predictions, spread)


def smooth_features(predictions: Predictions, bins: int) -> Summed:
    """Gap smoothed with the bandwidth that ``smooth_ece`` finds in the original sample."""
    confidence, gap = predictions.confidence, signed_gap(predictions)
    _, bandwidth = fixed_point(*smoothers(predictions))
    mesh = torch.linspace(
        0, 1, max(200, round(3 / bandwidth)), dtype=torch.float64, device=gap.device
    )
    cells = cells_for(bandwidth)

    def kernel(distance: Tensor) -> Tensor:
        far = distance.abs() > 0.5
        return (distance / bandwidth).square_().mul_(-0.5).exp_().masked_fill_(far, 0)

    def response(part: slice) -> Tensor:
        level = confidence[part, None]
        # The part of a sample that the grid of `smooth_ece` assigns to an end is not reflected.
        inside_low = (level * cells).clamp(max=1)
        inside_high = ((1 - level) * cells).clamp(0, 1)
        reflected = kernel(mesh + level) * inside_low + kernel(2 - mesh - level) * inside_high
        return kernel(mesh - level) + reflected

    chunks = row_chunks(len(confidence), len(mesh), RESAMPLED_ELEMENTS)
    weights = predictions.weights
    mass = sum(
        float((response(part) if weights is None else response(part) * weights[part, None]).sum())
        for part in chunks
    )
    return Summed(dense(len(mesh), lambda part: response(part) * (gap[part, None] / mass)), _l1)


def l2_features(predictions: Predictions, bins: int) -> Summed:
    """Count, confidence and correctness per equal-width bin."""
    index = width_index(predictions.confidence, bins)
    values = torch.stack(
        [
            torch.ones_like(predictions.confidence),
            predictions.confidence,
            predictions.correct.double(),
        ],
        dim=-1,
    )

    def features(part: slice) -> Tensor:
        return (values[part, :, None] * one_hot(index[part], bins)[:, None, :]).flatten(1)

    def reduce(sums: Tensor) -> Tensor:
        return debiased_square(BinSums(*sums.unflatten(-1, (3, bins)).unbind(-2)))

    return Summed(dense(3 * bins, features), reduce)


def mass_membership(ranked: Ranked, confidence: Tensor, bins: int) -> Callable[[slice], Tensor]:
    """Fractions (n, M) of each sample of a slice in the equal-mass bins.

    A group of tied confidences across a boundary belongs to both bins, each of its samples in
    proportion to the ranks on either side, or to the weights.
    """
    if ranked.weight is not None:
        return _weighted_membership(ranked, ranked.weight, confidence, bins)
    ranks = mass_ranks(ranked.samples, bins, confidence.device)
    start = torch.searchsorted(ranked.confidence, confidence)
    end = torch.searchsorted(ranked.confidence, confidence, right=True)

    def member(part: slice) -> Tensor:
        low, high = start[part, None], end[part, None]
        overlap = torch.minimum(high, ranks[1:]) - torch.maximum(low, ranks[:-1])
        return overlap.clamp(min=0) / (high - low)

    return member


def _weighted_membership(
    ranked: Ranked, weight: Tensor, confidence: Tensor, bins: int
) -> Callable[[slice], Tensor]:
    marks = mass_marks(weight, bins)
    summed = torch.cat([weight.new_zeros(1), weight.cumsum(0)])
    start = summed[torch.searchsorted(ranked.confidence, confidence)]
    end = summed[torch.searchsorted(ranked.confidence, confidence, right=True)]

    def member(part: slice) -> Tensor:
        low, high = start[part, None], end[part, None]
        overlap = torch.minimum(high, marks[1:]) - torch.maximum(low, marks[:-1])
        return torch.where(high > low, overlap.clamp(min=0) / (high - low), 0.0)

    return member


def signed_gap(predictions: Predictions) -> Tensor:
    """Confidence minus correctness of each sample."""
    return predictions.confidence - predictions.correct.double()


def _l1(sums: Tensor) -> Tensor:
    return sums.abs().sum(-1)


def _cumulative_features(predictions: Predictions, norm: Callable[[Tensor], Tensor]) -> Summed:
    gap = signed_gap(predictions) / len(predictions.confidence)
    ranked = predictions.ranked
    points = min(CUMULATIVE_POINTS, ranked.samples)
    ends = mass_ranks(ranked.samples, points, gap.device)[1:] - 1
    levels = ranked.confidence[ends].unique()
    index = torch.bucketize(predictions.confidence, levels)
    cells = dense(len(levels), lambda part: one_hot(index[part], len(levels)) * gap[part, None])
    return Summed(cells, lambda sums: norm(sums.cumsum(-1)))
