"""Calibration errors of the top label: confidence = max p against correct = [argmax p = y].

Each function takes probabilities (..., N, K) with labels (..., N), or confidence (..., N) with
correct (..., N), distinguished by the number of dimensions, and returns a float64 tensor of the
batch shape. All raise ``ValueError`` on malformed input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from calibration.metrics.binning import BinSums, Scheme, mass_sums, width_index
from calibration.metrics.checks import Data, check_count
from calibration.metrics.predictions import Predictions

ROBUSTNESS_BINS = (10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True)
class MaximumError:
    """The maximum calibration error and the number of samples in the bin that determines it."""

    value: Tensor
    count: Tensor


class BinRobustness(NamedTuple):
    """ECE and MCE (..., B) at each of B numbers of bins."""

    bins: tuple[int, ...]
    ece: Tensor
    mce: Tensor


@torch.no_grad()
def ece(probabilities: Data, labels: Data, *, bins: int = 15) -> Tensor:
    """Expected calibration error: Σ_m (n_m/N)·|acc_m - conf_m| over equal-width bins.

    Naeini et al. 2015, Guo et al. 2017. conf_m is the mean confidence in the bin.

    >>> probabilities = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]]
    >>> ece(probabilities, [0, 1, 1, 1])  # (0.1 + 0.8 + 0.3 + 0.4) / 4
    tensor(0.4000, dtype=torch.float64)
    """
    return ece_of(Predictions.of(probabilities, labels), check_count(bins, "bins"))


def ece_of(predictions: Predictions, bins: int) -> Tensor:
    """``ece`` of checked predictions."""
    return _weighted_gap(predictions.width_sums(bins))


@torch.no_grad()
def overconfidence(probabilities: Data, labels: Data) -> Tensor:
    """Mean confidence minus accuracy: positive if over-confident, negative if under-confident.

    ECE with a single bin, but with its sign: gaps of opposite sign cancel.
    """
    return overconfidence_of(Predictions.of(probabilities, labels))


def overconfidence_of(predictions: Predictions) -> Tensor:
    """``overconfidence`` of checked predictions."""
    return predictions.mean(predictions.confidence - predictions.correct.double())


@torch.no_grad()
def mce(probabilities: Data, labels: Data, *, bins: int = 15) -> Tensor:
    """Maximum calibration error: max |acc_m - conf_m| over non-empty equal-width bins.

    Naeini et al. 2015. A single sample can determine it: see ``mce_with_count``.
    """
    return mce_with_count(probabilities, labels, bins=bins).value


@torch.no_grad()
def mce_with_count(probabilities: Data, labels: Data, *, bins: int = 15) -> MaximumError:
    """``mce`` together with the number of samples in the bin that determines it."""
    return mce_of(Predictions.of(probabilities, labels), check_count(bins, "bins"))


def mce_of(predictions: Predictions, bins: int) -> MaximumError:
    """``mce_with_count`` of checked predictions."""
    sums = predictions.width_sums(bins)
    # -1 prevents an empty bin from being chosen when every gap is 0.
    value, where = sums.gap.abs().masked_fill(sums.count == 0, -1).max(dim=-1)
    count = sums.count
    if predictions.weights is not None:  # the number of samples, whatever their weights
        there = predictions.weights > 0
        index = width_index(predictions.confidence[there], bins)
        count = torch.bincount(index, minlength=bins).double()
    return MaximumError(value, count.gather(-1, where[..., None]).squeeze(-1))


def mce_value_of(predictions: Predictions, bins: int) -> Tensor:
    """``mce`` of checked predictions."""
    return mce_of(predictions, bins).value


def mce_count_of(predictions: Predictions, bins: int) -> Tensor:
    """The number of samples in the bin that determines ``mce``."""
    return mce_of(predictions, bins).count


@torch.no_grad()
def average_ce(probabilities: Data, labels: Data, *, bins: int = 15) -> Tensor:
    """Unweighted mean of |acc_m - conf_m| over non-empty equal-width bins.

    Neumann et al. 2018 and netcal call this ACE; it is not ``ace``.
    """
    return average_ce_of(Predictions.of(probabilities, labels), check_count(bins, "bins"))


def average_ce_of(predictions: Predictions, bins: int) -> Tensor:
    """``average_ce`` of checked predictions."""
    sums = predictions.width_sums(bins)
    return sums.gap.abs().sum(-1) / (sums.count > 0).sum(-1)


@torch.no_grad()
def ace(probabilities: Data, labels: Data, *, bins: int = 15) -> Tensor:
    """Adaptive ECE: Σ_m (n_m/N)·|acc_m - conf_m| over equal-mass bins of confidence.

    Nguyen & O'Connor 2015; the "ACE" of the Meta-Regularization paper's tables. "ACE" also
    names ``average_ce`` and ``classwise_ace``. Bins split by rank; tied confidences share
    their mean correctness, so the order of rows does not matter.
    """
    return ace_of(Predictions.of(probabilities, labels), check_count(bins, "bins"))


def ace_of(predictions: Predictions, bins: int) -> Tensor:
    """``ace`` of checked predictions."""
    return _weighted_gap(mass_sums(predictions.ranked, bins))


@torch.no_grad()
def l2_debiased(
    probabilities: Data, labels: Data, *, bins: int = 15, scheme: Scheme = "width"
) -> Tensor:
    """Debiased squared L2 error: Σ_m (n_m/N)·[(acc_m - conf_m)² - acc_m(1-acc_m)/(n_m-1)].

    Kumar et al. 2019. A square, so not comparable in size with ``ece``; unbiased, so it may be
    negative. A bin with a single sample has no variance estimate and contributes 0.
    """
    predictions = Predictions.of(probabilities, labels)
    return l2_debiased_of(predictions, check_count(bins, "bins"), scheme)


def l2_debiased_of(predictions: Predictions, bins: int, scheme: Scheme = "width") -> Tensor:
    """``l2_debiased`` of checked predictions."""
    if scheme not in ("width", "mass"):
        raise ValueError(f"scheme must be 'width' or 'mass', found {scheme!r}")
    width = scheme == "width"
    return debiased_square(
        predictions.width_sums(bins) if width else mass_sums(predictions.ranked, bins)
    )


def debiased_square(sums: BinSums) -> Tensor:
    """The sum of ``l2_debiased`` from sums per bin (..., M)."""
    accuracy = sums.correct / sums.count.clamp(min=1)
    variance = accuracy * (1 - accuracy) / (sums.count - 1).clamp(min=1)
    return torch.where(sums.count > 1, sums.share * (sums.gap.square() - variance), 0.0).sum(-1)


@torch.no_grad()
def ks(probabilities: Data, labels: Data) -> Tensor:
    """Kolmogorov-Smirnov calibration error: max |Σ_{i<=j} (conf_i - correct_i)| / N.

    Gupta et al. 2021. Samples are sorted by confidence, with the maximum at distinct confidences.
    """
    return ks_of(Predictions.of(probabilities, labels))


def ks_of(predictions: Predictions) -> Tensor:
    """``ks`` of checked predictions."""
    return sup_norm(predictions.cumulative_gap)


@torch.no_grad()
def kuiper(probabilities: Data, labels: Data) -> Tensor:
    """Kuiper calibration error: maximum minus minimum of the cumulative gap of ``ks``.

    Arrieta-Ibarra et al. 2022. The cumulative gap starts at 0, hence ks <= kuiper <= 2 ks.
    """
    return kuiper_of(Predictions.of(probabilities, labels))


def kuiper_of(predictions: Predictions) -> Tensor:
    """``kuiper`` of checked predictions."""
    return spread(predictions.cumulative_gap)


def sup_norm(cumulative: Tensor) -> Tensor:
    """Largest absolute value over the last dimension."""
    low, high = torch.aminmax(cumulative, dim=-1)
    return torch.maximum(high, -low)


def spread(cumulative: Tensor) -> Tensor:
    """Maximum minus minimum over the last dimension, of a path that starts at 0."""
    low, high = torch.aminmax(cumulative, dim=-1)
    return high.clamp(min=0) - low.clamp(max=0)


@torch.no_grad()
def bin_robustness(
    probabilities: Data, labels: Data, *, bins: tuple[int, ...] = ROBUSTNESS_BINS
) -> BinRobustness:
    """ECE and MCE at several numbers of bins (Meta-Regularization, Figure 5)."""
    predictions = Predictions.of(probabilities, labels)
    counts = tuple(check_count(number, "bins") for number in bins)
    errors = torch.stack([ece_of(predictions, number) for number in counts], dim=-1)
    maxima = torch.stack([mce_of(predictions, number).value for number in counts], dim=-1)
    return BinRobustness(counts, errors, maxima)


def _weighted_gap(sums: BinSums) -> Tensor:
    return (sums.share * sums.gap.abs()).sum(-1)
