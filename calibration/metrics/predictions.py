"""Checked predictions, with the intermediate results that several metrics share."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from calibration.metrics.checks import Data, check_pairs, check_rows, to_floating, to_tensor
from calibration.metrics.chunks import row_chunks
from calibration.metrics.metric import Needs
from calibration.metrics.ranking import Ranked, rank


class Predictions:
    """What a classifier said and what was true, computed on demand and kept.

    Built by ``of`` from probabilities (..., N, K) and labels (..., N), or from confidence
    (..., N) and correct (..., N); the number of dimensions tells which. The true posterior
    (..., N, K) can accompany rows.
    """

    def __init__(
        self,
        rows: tuple[Tensor, Tensor] | None,
        pairs: tuple[Tensor, Tensor] | None,
        posterior: Tensor | None = None,
    ) -> None:
        self._rows = rows
        self._pairs = pairs
        self._posterior = posterior
        self._shared: dict[str, Tensor] = {}

    def shared(self, name: str, make: Callable[[Predictions], Tensor]) -> Tensor:
        """What several metrics of another module are made from: made once, and kept."""
        if name not in self._shared:
            self._shared[name] = make(self)
        return self._shared[name]

    @classmethod
    def of(cls, first: Data, second: Data, posterior: Tensor | None = None) -> Predictions:
        """Check either kind of input; ``ValueError`` says what is wrong with it."""
        outputs = to_floating(first, "probabilities")
        truth = to_tensor(second, "labels")
        if outputs.ndim == truth.ndim:
            return cls(None, check_pairs(outputs, truth))
        return cls(check_rows(outputs, truth), None, posterior)

    @property
    def known(self) -> Needs:
        """What metrics can ask for at most."""
        if self._rows is None:
            return "confidence"
        return "rows" if self._posterior is None else "posterior"

    def take(self, index: Tensor) -> Predictions:
        """The samples with these indices, repeated as they are, of predictions without a batch."""
        if self._rows is None:
            assert self._pairs is not None, "made of one or the other"
            return Predictions(None, (self._pairs[0][index], self._pairs[1][index]))
        posterior = None if self._posterior is None else self._posterior[index]
        return Predictions((self._rows[0][index], self._rows[1][index]), None, posterior)

    @classmethod
    def of_rows(cls, probabilities: Data, labels: Data) -> Predictions:
        """Check probabilities (..., N, K) with labels (..., N); ``ValueError`` otherwise."""
        return cls(check_rows(probabilities, labels), None)

    @property
    def has_rows(self) -> bool:
        """Whether whole rows of probabilities are known, not only the top label's."""
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
        return rank(self.confidence, self.correct)

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
        """Sums over the N rows of the probabilities (..., K) and of their squares (...)."""
        probabilities, _ = self.rows
        *batch, samples, classes = probabilities.shape
        flat = probabilities.reshape(-1, samples, classes)
        sums = flat.new_zeros(len(flat), classes, dtype=torch.float64)
        squares = flat.new_zeros(len(flat), dtype=torch.float64)
        for number, rows in enumerate(flat):
            for chunk in row_chunks(samples, classes):
                block = rows[chunk].double()
                sums[number] += block.sum(0)
                flattened = block.reshape(-1)
                squares[number] += flattened @ flattened
        return sums.view(*batch, classes), squares.view(batch)
