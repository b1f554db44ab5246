"""Maps of one score extended to many classes: one map per class, with normalised rows.

With K = 2 there is one map, for the score of class 1. With K ≥ 3 every class has its own,
fitted to "this class or another", and each row of results is divided by its sum. A row whose
results are all zero carries no information and keeps its softmax probabilities.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from calibration.calibrators.calibrator import Calibrator, Floats, rows_at_once
from calibration.complexity import CalibratorComplexity

Map = TypeVar("Map")


@dataclass(frozen=True)
class Score:
    """One class against the rest, for N samples."""

    log_p: Floats
    """log p, (N,)."""
    log_not_p: Floats
    """log(1 − p), (N,), exact even where p rounds to 1."""
    classes: int
    """The number of all classes."""
    weights: Floats | None = None
    """How often each sample counts, (N,), if a weighted map is fitted to weighted samples."""

    @cached_property
    def p(self) -> Floats:
        """The probability, (N,)."""
        return np.exp(self.log_p)

    @cached_property
    def log_odds(self) -> Floats:
        """log(p / (1 − p)), (N,)."""
        return self.log_p - self.log_not_p


def scores(logits: Tensor) -> Iterator[Score]:
    """The score of each class of ``logits`` (N, K); for K = 2, of class 1 only."""
    samples, classes = logits.shape
    log_p = np.empty((classes, samples))
    log_not_p = np.empty((classes, samples))
    rows = rows_at_once(logits)
    for start in range(0, samples, rows):
        z = logits[start : start + rows]
        log_softmax = torch.log_softmax(z, 1)
        log_rest = torch.log1p(-log_softmax.exp())
        # 1 − p suffers cancellation for p near 1, which only a row's largest p can be.
        top = z.argmax(1, keepdim=True)
        others = log_softmax.scatter(1, top, -torch.inf)
        log_rest.scatter_(1, top, others.logsumexp(1, keepdim=True))
        log_p[:, start : start + rows] = log_softmax.numpy().T
        log_not_p[:, start : start + rows] = log_rest.numpy().T
    return (Score(log_p[k], log_not_p[k], classes) for k in mapped(classes))


def targets(labels: Tensor, classes: int) -> Iterator[Floats]:
    """1 for the class and 0 otherwise, (N,), for every class that has a score."""
    y = labels.numpy()
    return ((y == k).astype(np.float64) for k in mapped(classes))


def mapped(classes: int) -> range:
    """The classes that have a map: all, or only class 1 of two."""
    return range(1 if classes == 2 else 0, classes)


class OneVsRest(Calibrator, Generic[Map]):
    """A calibrator made of one map per class."""

    complexity = CalibratorComplexity.FREE
    keeps_argmax = False
    maps: list[Map]

    def _fit(self, logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> None:
        self._choose(logits, labels)
        counted = None if weights is None else weights.numpy()
        self.maps = [
            self._fit_map(replace(score, weights=counted), target)
            for score, target in zip(scores(logits), targets(labels, logits.shape[1]), strict=True)
        ]

    def _apply(self, logits: Tensor) -> Tensor:
        columns = [
            torch.from_numpy(self._apply_map(fitted, score))
            for fitted, score in zip(self.maps, scores(logits), strict=True)
        ]
        positive = torch.stack(columns, dim=1).clamp_(0, 1)
        if logits.shape[1] == 2:
            return torch.cat([1 - positive, positive], dim=1)
        total = positive.sum(1, keepdim=True)
        empty = (total == 0).squeeze(1)
        rows = positive.div_(total)
        rows[empty] = torch.softmax(logits[empty], 1)
        return rows

    def _choose(self, logits: Tensor, labels: Tensor) -> None:
        """Choose the parameters shared by the maps of all classes, before the first is fitted."""

    @abstractmethod
    def _fit_map(self, score: Score, target: Floats) -> Map:
        """The map of one class, fitted to ``target`` (N,), 1 for the class and 0 otherwise."""

    @abstractmethod
    def _apply_map(self, fitted: Map, score: Score) -> Floats:
        """The probability (N,) of the class."""
