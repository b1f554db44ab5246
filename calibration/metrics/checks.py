"""Argument checks of the metrics, separate from their arithmetic.

Every check raises ``ValueError`` naming the argument, what was found and what is expected.
NumPy arrays (or anything NumPy can read) are accepted besides tensors.
"""

from __future__ import annotations

import operator
import warnings
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from calibration.data.rounding import SUM_TOLERANCE

Data: TypeAlias = Tensor | ArrayLike


def to_tensor(value: Data, name: str) -> Tensor:
    """Return ``value`` as a detached tensor, sharing memory where possible."""
    if isinstance(value, Tensor):
        return value.detach()
    try:
        array: np.ndarray[Any, Any] = np.asarray(value, order="C")
        with warnings.catch_warnings():
            # Read-only arrays (memory-mapped files) are fine: no metric writes to its input.
            warnings.filterwarnings("ignore", message=".*not writable", category=UserWarning)
            return torch.as_tensor(array)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name} cannot be read as an array of numbers: {error}") from None


def to_floating(value: Data, name: str) -> Tensor:
    """Return ``value`` as a real floating-point tensor (..., N) with at least one sample."""
    tensor = to_tensor(value, name)
    if tensor.is_complex():
        raise ValueError(f"{name} must be real numbers, found {tensor.dtype}")
    if not tensor.is_floating_point():
        tensor = tensor.double()
    if tensor.ndim == 0 or tensor.numel() == 0:
        raise ValueError(
            f"{name} is empty: shape {tuple(tensor.shape)}; at least one sample is needed"
        )
    return tensor


def check_rows(probabilities: Data, labels: Data) -> tuple[Tensor, Tensor]:
    """Return probabilities (..., N, K) and labels (..., N) as tensors on one device.

    Raises ``ValueError`` for wrong shapes, no samples, fewer than two classes, NaN, negative
    probabilities, rows that do not sum to 1, and labels that are not integers in 0…K-1.
    """
    rows = to_floating(probabilities, "probabilities")
    checked_labels = check_labels(rows, labels, "probabilities")
    check_simplex(rows, "probabilities")
    return rows, checked_labels


def check_logits(logits: Data, labels: Data) -> tuple[Tensor, Tensor]:
    """Return logits (..., N, K) and labels (..., N) as tensors on one device.

    Raises ``ValueError`` for wrong shapes, no samples, fewer than two classes, values that are
    not finite, and labels that are not integers in 0…K-1.
    """
    rows = to_floating(logits, "logits")
    checked_labels = check_labels(rows, labels, "logits")
    low, high = (float(bound) for bound in torch.aminmax(rows))
    if not (np.isfinite(low) and np.isfinite(high)):
        raise ValueError(f"logits must be finite, found values from {low} to {high}")
    return rows, checked_labels


def check_labels(rows: Tensor, labels: Data, name: str) -> Tensor:
    """Return labels as int64 (..., N) on the device of ``rows`` (..., N, K)."""
    tensor = to_tensor(labels, "labels")
    if rows.ndim != tensor.ndim + 1 or rows.shape[:-1] != tensor.shape:
        raise ValueError(
            f"{name} must have shape (..., N, K) and labels (..., N), "
            f"found {tuple(rows.shape)} and {tuple(tensor.shape)}"
        )
    classes = rows.shape[-1]
    if classes < 2:
        raise ValueError(
            f"{name} must have at least 2 classes in the last dimension, found {classes}; "
            "for a binary confidence give (confidence, correct) of equal shape"
        )
    if tensor.is_floating_point() or tensor.is_complex():
        raise ValueError(f"labels must be whole numbers, found {tensor.dtype}")
    tensor = tensor.to(device=rows.device, dtype=torch.int64)
    low, high = (int(bound) for bound in torch.aminmax(tensor))
    if low < 0 or high >= classes:
        raise ValueError(
            f"labels must lie in 0…{classes - 1} ({name} has {classes} classes), "
            f"found values from {low} to {high}"
        )
    return tensor


def check_simplex(rows: Tensor, name: str) -> None:
    """Raise ``ValueError`` unless every row of (..., K) is a probability vector."""
    low, high = (float(bound) for bound in torch.aminmax(rows))
    if np.isnan(low) or np.isnan(high):
        raise ValueError(f"{name} contains NaN")
    if low < 0:
        raise ValueError(
            f"{name} must not be negative, found {low:.6g}; logits need a softmax first"
        )
    # Half precision would round the sum itself to two or three digits.
    wide = rows.dtype if rows.dtype in (torch.float32, torch.float64) else torch.float32
    low, high = (float(bound) for bound in torch.aminmax(rows.sum(-1, dtype=wide)))
    if low < 1 - SUM_TOLERANCE or high > 1 + SUM_TOLERANCE:
        raise ValueError(
            f"{name} must sum to 1 over the last dimension, found sums from {low:.6g} to {high:.6g}"
        )


def check_pairs(confidence: Data, correct: Data) -> tuple[Tensor, Tensor]:
    """Return confidence (..., N) and boolean correctness (..., N) on one device.

    Raises ``ValueError`` for unequal shapes, no samples, NaN, confidences outside [0, 1], and
    correctness that is neither boolean nor 0/1.
    """
    values = check_confidence(confidence)
    hits = to_tensor(correct, "correct").to(values.device)
    if hits.shape != values.shape:
        raise ValueError(
            "confidence and correct must have equal shapes, "
            f"found {tuple(values.shape)} and {tuple(hits.shape)}"
        )
    if hits.dtype != torch.bool:
        wrong = hits[(hits != 0) & (hits != 1)]
        if wrong.numel() > 0:
            raise ValueError(f"correct must be boolean or 0/1, found {wrong[0].item()}")
    return values, hits.bool()


def check_confidence(confidence: Data) -> Tensor:
    """Return confidences (..., N) as a tensor; raise ``ValueError`` unless all lie in [0, 1]."""
    values = to_floating(confidence, "confidence")
    low, high = (float(bound) for bound in torch.aminmax(values))
    if np.isnan(low) or np.isnan(high):
        raise ValueError("confidence contains NaN")
    if low < 0 or high > 1 + SUM_TOLERANCE:
        raise ValueError(
            f"confidence must lie in [0, 1], found values from {low:.6g} to {high:.6g}"
        )
    return values


def check_count(value: int, name: str) -> int:
    """Return ``value`` as an int; raise ``ValueError`` unless it is an integer >= 1."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number, found {value!r}") from None
    if number < 1:
        raise ValueError(f"{name} must be at least 1, found {number}")
    return number


def check_positive(value: float, name: str, most: float = float("inf")) -> float:
    """Return ``value`` as a float; raise ``ValueError`` unless 0 < value <= most and finite."""
    number = float(value)
    if not (0 < number <= most and np.isfinite(number)):
        limit = "" if most == float("inf") else f" and at most {most:g}"
        raise ValueError(f"{name} must be positive{limit}, found {number:g}")
    return number
