"""Checked predictions, with intermediate results shared by several metrics."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from calibration.metrics.binning import BinSums, width_sums
from calibration.metrics.checks import Data, check_pairs, check_rows, to_floating, to_tensor
from calibration.metrics.chunks import row_chunks
from calibration.metrics.metric import Needs
from calibration.metrics.ranking import Ranked, rank, rank_weighted
from calibration.row_weights import check_weights, mean_one

Shared = TypeVar("Shared")


class Predictions:
    """A classifier's predictions and the truth; derived values are computed lazily and cached.

    Built by ``of`` from probabilities (..., N, K) and labels (..., N), or from confidence
    (..., N) and correct (..., N); distinguished by the number of dimensions. The true posterior
    (..., N, K) can accompany rows, and ``weights`` (N) the samples if there is no batch; they
    are scaled to a mean of 1, and None if all are equal, as those have no effect.
    """

    def __init__(
        self,
        rows: tuple[Tensor, Tensor] | None,
        pairs: tuple[Tensor, Tensor] | None,
        posterior: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> None:
        self._rows = rows
        self._pairs = pairs
        self._posterior = posterior
        self.weights = weights
        self._shared: dict[str, Any] = {}
        self._width_sums: dict[int, BinSums] = {}

    def shared(self, name: str, make: Callable[[Predictions], Shared]) -> Shared:
        """An intermediate result shared by several metrics of another module, computed once."""
        if name not in self._shared:
            self._shared[name] = make(self)
        found: Shared = self._shared[name]
        return found

    @classmethod
    def of(
        cls,
        first: Data,
        second: Data,
        posterior: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Predictions:
        """Check either kind of input; raises ``ValueError`` saying what is wrong with it."""
        outputs = to_floating(first, "probabilities")
        truth = to_tensor(second, "labels")
        scaled = None if weights is None else _scaled(weights, truth)
        if outputs.ndim == truth.ndim:
            return cls(None, check_pairs(outputs, truth), weights=scaled)
        return cls(check_rows(outputs, truth), None, posterior, scaled)

    @property
    def known(self) -> Needs:
        """The most that metrics can require of these predictions."""
        if self._rows is None:
            return "confidence"
        return "rows" if self._posterior is None else "posterior"

    def take(self, index: Tensor) -> Predictions:
        """The samples with these indices, which may repeat, of predictions without a batch."""
        if self._rows is None:
            assert self._pairs is not None, "made of one or the other"
            pairs = self._pairs[0][index], self._pairs[1][index]
            return Predictions(None, pairs).reweighted(self._taken(self.weights, index))
        rows = self._rows[0][index], self._rows[1][index]
        taken = Predictions(rows, None, self._taken(self._posterior, index))
        return taken.reweighted(self._taken(self.weights, index))

    @staticmethod
    def _taken(values: Tensor | None, index: Tensor) -> Tensor | None:
        return None if values is None else values[index]

    def reweighted(self, weights: Tensor | None) -> Predictions:
        """The same samples with other weights, on any scale, or none."""
        if weights is not None:
            weights = _scaled(weights, self.confidence)
        return Predictions(self._rows, self._pairs, self._posterior, weights)

    def mean(self, values: Tensor) -> Tensor:
        """The weighted mean (...) of a value per sample (..., N)."""
        if self.weights is None:
            return values.mean(-1)
        # Values without weight may be infinite.
        return torch.where(self.weights > 0, values * self.weights, 0.0).mean(-1)

    @classmethod
    def of_rows(cls, probabilities: Data, labels: Data) -> Predictions:
        """Check probabilities (..., N, K) with labels (..., N); ``ValueError`` otherwise."""
        return cls(check_rows(probabilities, labels), None)

    @property
    def has_rows(self) -> bool:
        """Whether whole rows of probabilities are known, not only that of the top label."""
        return self._rows is not None

    @property
    def rows(self) -> tuple[Tensor, Tensor]:
        """Probabilities (..., N, K) as given and int64 labels (..., N)."""
        if self._rows is None:
            raise ValueError("this metric needs probabilities (..., N, K), found only confidences")
        return self._rows

    @property
    def posterior(self) -> Tensor:
        """The true posterior (..., N, K)."""
        if self._posterior is None:
            raise ValueError("this metric needs the true posterior, which is not known here")
        return self._posterior

    @property
    def batch(self) -> torch.Size:
        """The leading batch dimensions."""
        return self.confidence.shape[:-1]

    @cached_property
    def _top(self) -> tuple[Tensor, Tensor]:
        if self._pairs is not None:
            confidence, correct = self._pairs
        else:
            probabilities, labels = self.rows
            confidence, predicted = probabilities.max(dim=-1)
            correct = predicted == labels
        return confidence.double(), correct

    @property
    def confidence(self) -> Tensor:
        """The largest probability of each sample, float64 (..., N)."""
        return self._top[0]

    @property
    def correct(self) -> Tensor:
        """Whether the most probable class is the label, bool (..., N)."""
        return self._top[1]

    @cached_property
    def label_probability(self) -> Tensor:
        """The probability given to the true class, float64 (..., N)."""
        probabilities, labels = self.rows
        return probabilities.gather(-1, labels[..., None]).squeeze(-1).double()

    @cached_property
    def ranked(self) -> Ranked:
        """The samples sorted by confidence."""
        if self.weights is not None:
            return rank_weighted(self.confidence, self.correct, self.weights)
        return rank(self.confidence, self.correct)

    def width_sums(self, bins: int) -> BinSums:
        """Sums over bins of equal width, on which several metrics are based."""
        if bins not in self._width_sums:
            self._width_sums[bins] = width_sums(self.ranked, bins)
        return self._width_sums[bins]

    @cached_property
    def cumulative_gap(self) -> Tensor:
        """Cumulative (confidence - correct) / N at distinct confidences, (..., N).

        Inside a group of tied confidences, where the value would depend on the order of rows,
        it is 0: the value before the first sample.
        """
        ranked = self.ranked
        gap = ranked.cumulative_confidence[..., 1:] - ranked.cumulative_correct[..., 1:]
        gap[..., :-1].masked_fill_(ranked.confidence[..., 1:] == ranked.confidence[..., :-1], 0)
        return gap.div_(ranked.samples)

    @cached_property
    def moments(self) -> tuple[Tensor, Tensor]:
        """Sums over the N rows of the probabilities (..., K) and of their squares (...).

        Weighted, if there are weights.
        """
        probabilities, _ = self.rows
        *batch, samples, classes = probabilities.shape
        flat = probabilities.reshape(-1, samples, classes)
        sums = flat.new_zeros(len(flat), classes, dtype=torch.float64)
        squares = flat.new_zeros(len(flat), dtype=torch.float64)
        for number, rows in enumerate(flat):
            for chunk in row_chunks(samples, classes):
                block = rows[chunk].double()
                if self.weights is not None:
                    weight = self.weights[chunk]
                    sums[number] += weight @ block
                    squares[number] += weight @ block.square().sum(-1)
                    continue
                sums[number] += block.sum(0)
                flattened = block.reshape(-1)
                squares[number] += flattened @ flattened
        return sums.view(*batch, classes), squares.view(batch)


def _scaled(weights: Tensor, samples: Tensor) -> Tensor | None:
    """Weights (N) with a mean of 1, None if all are equal. Raises ``ValueError``."""
    if samples.ndim != 1 or weights.shape != samples.shape:
        raise ValueError(
            f"weights must have shape (N), one for each of N samples without a batch, found "
            f"{tuple(weights.shape)} for samples {tuple(samples.shape)}"
        )
    check_weights(weights, "weights")
    if bool((weights == weights[0]).all()):
        return None
    return mean_one(weights).to(samples.device)
