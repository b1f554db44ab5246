"""The contract of every post-hoc calibrator, and their registry."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibration.complexity import CalibratorComplexity
from calibration.registry import Registry
from calibration.row_weights import check_weights

Floats = NDArray[np.float64]


class Calibrator(ABC):
    """A map from logits to calibrated probabilities, fitted on held-out data.

    ``fit(logits, labels)`` takes logits (N, K) of any float type on any device and integer
    labels (N,); log-probabilities are valid logits. ``weights`` (N,) say how often each
    row counts: integer weights are equivalent to repeated rows. A calibrator that is not
    ``weighted`` does not support them and is fitted without. Calling the fitted object gives
    probabilities (N, K), float64 on the CPU, whose rows sum to 1; or, if ``top_label`` is
    true, the confidence (N,) of the predicted class. A calibrator has no constructor
    arguments, so that ``type(self)()`` is an unfitted copy.

    A subclass implements ``_fit`` and ``_apply``, which receive checked float64 tensors; ``_fit``
    is given the weights if the class declares ``weighted``. If it declares ``scaling``, plain
    softmax replaces the fitted map whenever the map's NLL on the fitting data is above that of
    plain softmax (``converged`` is then False).

    ``fit`` and the call raise ``ValueError`` naming the argument if it has the wrong shape or
    type, is empty or not finite, or if a label is out of range; the call raises
    ``RuntimeError`` before ``fit``.
    """

    description: ClassVar[str]
    """One line for the list of calibrators."""
    scaling: ClassVar[bool]
    """Whether NLL on the fitting data is never above that of plain softmax."""
    keeps_argmax: ClassVar[bool]
    """Whether the predicted class still has the largest probability."""
    fast: ClassVar[bool]
    """Whether it is cheap even with 1000 classes."""
    top_label: ClassVar[bool] = False
    """Whether the call returns only the confidence of the predicted class."""
    weighted: ClassVar[bool] = False
    """Whether its fit follows the rows' weights; reports mark calibrators that do not."""
    complexity: ClassVar[int] = CalibratorComplexity.FREE
    """Its place on the scale of ``CalibratorComplexity``; by default the highest."""
    version: ClassVar[int] = 1
    """Increase it when the fit changes; stored predictions are then re-evaluated."""

    converged: bool
    """Whether the fit reached the optimum of its problem; set by ``fit``."""

    _classes: int | None = None
    _fell_back: bool = False

    def fit(self, logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> Self:
        """Fit on held-out ``logits`` (N, K) and ``labels`` (N,), discarding any earlier fit."""
        logits = checked_logits(logits)
        labels = checked_labels(labels, *logits.shape)
        self.converged = True
        if weights is None or not self.weighted:
            weights = None
            self._fit(logits, labels)
        else:
            # Rows of weight 0 are removed: they must not move an end or a knot, either.
            weights = checked_weights(weights, len(logits))
            logits, labels, weights = (part[weights > 0] for part in (logits, labels, weights))
            self._fit(logits, labels, weights)
        if self.scaling:
            before = nll(torch.softmax(logits, 1), labels, weights)
            # Written so that a NaN counts as worse.
            self._fell_back = not nll(self._apply(logits), labels, weights) <= before
            self.converged = self.converged and not self._fell_back
        self._classes = logits.shape[1]
        return self

    def __call__(self, logits: Tensor) -> Tensor:
        """The calibrated probabilities (N, K) of ``logits``, or the confidence (N,)."""
        if self._classes is None:
            raise RuntimeError(f"{type(self).__name__} is not fitted: call fit(logits, labels)")
        logits = checked_logits(logits)
        if logits.shape[1] != self._classes:
            raise ValueError(
                f"logits has {logits.shape[1]} classes, but {type(self).__name__} was fitted "
                f"with {self._classes}"
            )
        return torch.softmax(logits, 1) if self._fell_back else self._apply(logits)

    @abstractmethod
    def _fit(self, logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> None:
        """Learn the map; set ``converged`` to False if the solver did not converge."""

    @abstractmethod
    def _apply(self, logits: Tensor) -> Tensor:
        """Apply the map."""


CALIBRATORS: Registry[type[Calibrator]] = Registry("calibrator", "calsweep.calibrators")


def nll(
    probabilities: Tensor, labels: Tensor, weights: Tensor | None = None
) -> tuple[float, float]:
    """Mean −log p of the true class, as a pair to be compared lexicographically.

    The first is infinite as soon as one p has underflowed to 0; the second, in which such a
    p counts as the smallest float64, can then still distinguish better from worse.
    """
    true = probabilities.gather(1, labels[:, None])
    counted = true.clamp_min(torch.finfo(torch.float64).tiny)
    if weights is not None:
        share = weights / weights.sum()
        return -(share @ true.log()).item(), -(share @ counted.log()).item()
    return -true.log().mean().item(), -counted.log().mean().item()


def checked_weights(weights: Tensor, samples: int) -> Tensor:
    """``weights`` as float64 (N,) on the CPU, none negative; raises ``ValueError``."""
    if not isinstance(weights, Tensor) or weights.shape != (samples,):
        found = tuple(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
        raise ValueError(f"weights must be a tensor of shape ({samples},), found {found}")
    check_weights(weights, "weights")
    return weights.detach().to("cpu", torch.float64)


def rows_at_once(logits: Tensor) -> int:
    """The number of rows to process at a time, so that intermediate results stay in the cache."""
    return max(256, 2**16 // logits.shape[1])


def checked_logits(logits: Tensor) -> Tensor:
    """``logits`` as a detached float64 tensor (N, K) on the CPU; raises ``ValueError``."""
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        found = logits.dtype if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(f"logits must be a floating-point tensor, found {found}")
    if logits.ndim != 2 or logits.shape[0] < 1 or logits.shape[1] < 2:
        raise ValueError(
            f"logits must have shape (N, K) with N ≥ 1 samples and K ≥ 2 classes, "
            f"found {tuple(logits.shape)}"
        )
    logits = logits.detach().to("cpu", torch.float64)
    # A finite sum has finite terms: the rest only finds out which one is not.
    if not math.isfinite(logits.sum()) and not (finite := torch.isfinite(logits)).all():
        row, column = (~finite).nonzero()[0].tolist()
        raise ValueError(
            f"logits must be finite, found {logits[row, column].item()} in row {row}, "
            f"class {column}; clip probabilities away from 0 before taking their logarithm"
        )
    return logits


def checked_labels(labels: Tensor, samples: int, classes: int) -> Tensor:
    """``labels`` as int64 (N,) on the CPU, each in 0…K−1; raises ``ValueError``."""
    integers = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    if not isinstance(labels, Tensor) or labels.dtype not in integers:
        found = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
        raise ValueError(f"labels must be an integer tensor, found {found}")
    if labels.shape != (samples,):
        raise ValueError(
            f"labels must have shape ({samples},), one per row of logits, "
            f"found {tuple(labels.shape)}"
        )
    labels = labels.to("cpu", torch.int64)
    low, high = labels.min().item(), labels.max().item()
    if low < 0 or high >= classes:
        raise ValueError(
            f"labels must lie in 0…{classes - 1} for {classes} classes, "
            f"found {low if low < 0 else high}"
        )
    return labels
