"""How maps of one score lift to many classes: one map per class, rows normalised.

With K = 2 there is one map, for the score of class 1. With K ≥ 3 every class has its own,
fitted to "this class or another", and each row of results is divided by its sum. A row whose
results are all zero carries no information and keeps its softmax probabilities.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from calibration.post_hoc.calibrator import Calibrator

Map = TypeVar("Map")


@dataclass(frozen=True)
class Score:
    """One class against the rest, for N samples."""

    log_p: np.ndarray
    """log p, (N,)."""
    log_not_p: np.ndarray
    """log(1 − p), (N,), exact even where p rounds to 1."""

    @cached_property
    def p(self) -> np.ndarray:
        """The probability, (N,)."""
        return np.exp(self.log_p)

    @cached_property
    def log_odds(self) -> np.ndarray:
        """log(p / (1 − p)), (N,)."""
        return self.log_p - self.log_not_p


def scores(logits: Tensor) -> Iterator[Score]:
    """The score of each class of ``logits`` (N, K); for K = 2 of class 1 only."""
    log_p = torch.log_softmax(logits, 1)
    log_not_p = torch.log1p(-log_p.exp())
    # 1 − p cancels where p is near 1, which only the largest of a row can be.
    top = logits.argmax(1, keepdim=True)
    rest = log_p.scatter(1, top, -torch.inf).logsumexp(1, keepdim=True)
    log_not_p.scatter_(1, top, rest)
    first = 1 if logits.shape[1] == 2 else 0
    columns = zip(log_p.T[first:].contiguous(), log_not_p.T[first:].contiguous(), strict=True)
    return (Score(p.numpy(), not_p.numpy()) for p, not_p in columns)


class OneVsRest(Calibrator, Generic[Map]):
    """A calibrator made of one map per class."""

    keeps_argmax = False
    maps: list[Map]

    def _fit(self, logits: Tensor, labels: Tensor) -> None:
        classes = range(1, 2) if logits.shape[1] == 2 else range(logits.shape[1])
        y = labels.numpy()
        self.maps = [
            self._fit_map(score, (y == k).astype(np.float64))
            for k, score in zip(classes, scores(logits), strict=True)
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

    @abstractmethod
    def _fit_map(self, score: Score, target: np.ndarray) -> Map:
        """The map of one class, fitted to ``target`` (N,), 1 for the class and 0 else."""

    @abstractmethod
    def _apply_map(self, fitted: Map, score: Score) -> np.ndarray:
        """The probability (N,) of the class."""
