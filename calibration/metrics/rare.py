"""The rarest class: its share, its own calibration error, and where top-label ECE cannot see it.

Functions of the data take probabilities (..., N, K) and labels (..., N), return a float64
tensor of the batch shape and raise ``ValueError`` on malformed input. The rarest class is the
one with the fewest rows of those that occur; of equally rare ones the last, so that it is the
second of two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from calibration.metrics.checks import Data, check_count
from calibration.metrics.predictions import Predictions
from calibration.metrics.top_label import ace_of

LEAST_SHARE = 0.05
"""A class is rare below this share of the rows …"""
LEAST_OF_EQUAL = 0.25
"""… and below this fraction of 1/K, the share of each of K equally frequent classes."""


class BlindSpots(NamedTuple):
    """What top-label ECE cannot see among classes of given shares.

    ``bluff`` is the ECE of always predicting the most common class with confidence 1; if it
    is below ``LEAST_SHARE``, ECE is ``blind``: a value near 0 says nothing about the probabilities
    of the other classes. ``rare`` are the numbers of the rare classes, rarest first: their errors
    have so little weight in ECE that it says nothing about them.
    """

    bluff: float
    blind: bool
    rare: tuple[int, ...]


def blind_spots(shares: Sequence[float]) -> BlindSpots:
    """Which classes top-label ECE cannot see, given each class's share of the rows.

    Always predicting the most common class is correct in its share of the cases: with confidence
    1, ECE is 1 minus that share; with the share as confidence it is 0; and neither predictor knows
    anything. Classes without rows are not listed.

    >>> blind_spots([0.986, 0.014])
    BlindSpots(bluff=0.014, blind=True, rare=(1,))
    """
    bluff = round(1 - max(shares), 12)
    most = min(LEAST_SHARE, LEAST_OF_EQUAL / len(shares))
    rare = sorted((share, k) for k, share in enumerate(shares) if 0 < share < most)
    return BlindSpots(bluff, bluff < LEAST_SHARE, tuple(k for _, k in rare))


def class_shares(labels: Tensor, classes: int, weights: Tensor | None = None) -> list[float]:
    """Each class's share of the labels (N), or of their weights."""
    counts = torch.bincount(labels, weights, minlength=classes).double()
    shares: list[float] = (counts / counts.sum()).tolist()
    return shares


def rarest_class(labels: Tensor, classes: int, weights: Tensor | None = None) -> int:
    """The number of the rarest class that occurs among labels (N); of equals the last.

    ``weights`` (N) have a mean of 1.
    """
    counts = torch.bincount(labels, weights, minlength=classes)
    counts = counts.masked_fill(counts == 0, len(labels) + 1)
    return classes - 1 - int(counts.flip(0).argmin())


@torch.no_grad()
def base_rate(probabilities: Data, labels: Data) -> Tensor:
    """The rarest class's share of the rows: average precision by chance."""
    return base_rate_of(Predictions.of_rows(probabilities, labels))


def base_rate_of(predictions: Predictions) -> Tensor:
    """``base_rate`` of checked predictions."""
    return _each(predictions, lambda one: one.mean(one.correct.double()))


@torch.no_grad()
def rare_class_bias(probabilities: Data, labels: Data) -> Tensor:
    """Mean probability of the rarest class minus its share: calibration in the large.

    Positive if the class is expected more often than it occurs (Cox 1958; Steyerberg 2009).
    """
    return rare_class_bias_of(Predictions.of_rows(probabilities, labels))


def rare_class_bias_of(predictions: Predictions) -> Tensor:
    """``rare_class_bias`` of checked predictions."""
    return _each(predictions, lambda one: one.mean(one.confidence - one.correct.double()))


@torch.no_grad()
def rare_class_ece(probabilities: Data, labels: Data, *, bins: int = 15) -> Tensor:
    """Σ_m (n_m/N)·|freq_m - mean p_m| of the rarest class's probability, equal-mass bins.

    The class's part of the class-wise error of Nixon et al. 2019. To be compared with
    ``base_rate``, which is the error of always predicting 0.
    """
    return rare_class_ece_of(Predictions.of_rows(probabilities, labels), check_count(bins, "bins"))


def rare_class_ece_of(predictions: Predictions, bins: int) -> Tensor:
    """``rare_class_ece`` of checked predictions."""
    return _each(predictions, lambda one: ace_of(one, bins))


def rarest_alone(predictions: Predictions) -> Predictions:
    """The rarest class's probability and whether a row is of it, as confidence and correct."""
    probabilities, labels = predictions.rows
    weights = predictions.weights
    rarest = rarest_class(labels, probabilities.shape[-1], weights)
    return Predictions(None, (probabilities[:, rarest], labels == rarest), weights=weights)


def _each(predictions: Predictions, measure: Callable[[Predictions], Tensor]) -> Tensor:
    """A measure of the rarest class only, which each batch element determines for itself."""
    probabilities, labels = predictions.rows
    *batch, samples, classes = probabilities.shape
    pieces = zip(
        probabilities.reshape(-1, samples, classes), labels.reshape(-1, samples), strict=True
    )
    weights = predictions.weights
    alone = [rarest_alone(Predictions(one, None, weights=weights)) for one in pieces]
    return torch.stack([measure(one) for one in alone]).view(batch)
