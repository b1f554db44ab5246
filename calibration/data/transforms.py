"""Transforms from raw inputs to network inputs, fitted on the training part."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import reduce
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from calibration.data.columns import Column
from calibration.data.dataset import Splits, Transform
from calibration.data.encodings import NumericInputs, PiecewiseLinear, Quantiles, Robust
from calibration.data.mapped import column_blocks, in_pieces

_CHUNK = 256
"""Rows converted at a time: few enough to stay in the processor's cache."""


def fit_transform(inputs: Tensor, columns: tuple[Column, ...]) -> Transform:
    """Fit the transform for a table's columns, or for points or images without columns."""
    if columns and columns[0].kind == "text":
        return Unreadable()
    return TableTransform.fit(inputs, columns) if columns else Standardise.fit(inputs)


@dataclass(frozen=True, eq=False)
class Standardise:
    """(x − mean) / standard deviation, per feature of (N, D) or per channel of (N, C, H, W)."""

    mean: Tensor
    scale: Tensor

    @classmethod
    def fit(cls, inputs: Tensor, prepare: Callable[[Tensor], Tensor] = Tensor.double) -> Self:
        """Fit on the training part's raw inputs, with moments in float64.

        ``prepare`` maps rows to the values that are standardised.
        """
        dims = (0, *range(2, inputs.ndim))
        count = len(inputs) * math.prod(inputs.shape[2:])

        def chunks() -> Iterator[Tensor]:
            # Whole image sets in float64 would take eight times their memory.
            return (prepare(chunk) for chunk in in_pieces(inputs, _CHUNK))

        mean = _total(c.sum(dims, keepdim=True) for c in chunks()) / count
        squares = ((c - mean).square().sum(dims, keepdim=True) for c in chunks())
        variance = _total(squares) / count
        return cls(mean[0], _safe_scale(mean[0], variance[0]))

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return standardised float32 inputs."""
        mean, scale = self.mean.to(inputs.device), self.scale.to(inputs.device)
        if inputs.dtype == torch.float64:
            return ((inputs - mean) / scale).float()
        # Float64 images would take twice the memory and give the same float32 values
        # except for the last bit.
        return (inputs.float() - mean.float()) / scale.float()


def _total(sums: Iterable[Tensor]) -> Tensor:
    return reduce(torch.add, sums, torch.zeros((), dtype=torch.float64))


def _safe_scale(mean: Tensor, variance: Tensor) -> Tensor:
    # The computed deviation of a constant is rounding noise rather than exactly 0.
    scale = variance.sqrt()
    return torch.where(scale > 1e-12 * mean.abs(), scale, torch.ones_like(scale))


@dataclass(frozen=True, eq=False)
class TableTransform:
    """Imputed and encoded numbers, missing indicators, then one-hot categories.

    A missing number becomes the training median (0 if there is none); a column with
    values missing in training gets an indicator. A missing category is its own
    category if it occurs in training; one that does not occur there is all zeros.
    """

    numeric: tuple[int, ...]
    median: Tensor
    numbers: Standardise | Robust | Quantiles | PiecewiseLinear
    indicators: tuple[int, ...]
    categories: tuple[tuple[int, tuple[float, ...]], ...]

    @classmethod
    def fit(cls, inputs: Tensor, columns: tuple[Column, ...]) -> Self:
        """Fit on the training part's raw inputs, as encoded by ``columns``."""
        numeric = tuple(i for i, column in enumerate(columns) if column.kind == "numeric")
        categorical = tuple(i for i, column in enumerate(columns) if column.kind == "categorical")
        medians, gaps = [], []
        for values in _each_column(inputs, numeric):
            medians.append(_median(values))
            gaps.append(bool(values.isnan().any()))
        levels = _each_column(inputs, categorical)
        codes = [tuple(np.unique(values.numpy()).tolist()) for values in levels]
        median = torch.tensor(medians, dtype=torch.float64)
        return cls(
            numeric=numeric,
            median=median,
            numbers=Standardise.fit(inputs, lambda rows: _filled(rows[:, numeric], median)),
            indicators=tuple(place for place, gap in zip(numeric, gaps, strict=True) if gap),
            categories=tuple(zip(categorical, codes, strict=True)),
        )

    @property
    def category_blocks(self) -> tuple[int, ...]:
        """The sizes of the one-hot blocks that the inputs end with."""
        return tuple(len(codes) for _, codes in self.categories)

    def filled(self, inputs: Tensor) -> Tensor:
        """Return the numeric columns of raw inputs with missing values imputed."""
        return _filled(inputs[:, self.numeric], self.median)

    def filled_blocks(self, inputs: Tensor) -> Iterator[Tensor]:
        """The same, a few columns at a time if the rows are in a file."""
        start = 0
        for values in column_blocks(inputs, self.numeric):
            end = start + values.shape[1]
            yield _filled(values, self.median[start:end])
            start = end

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return float32 inputs: numbers, indicators and one-hot blocks side by side."""
        blocks = [self.numbers(self.filled(inputs)), inputs[:, self.indicators].isnan().float()]
        for place, codes in self.categories:
            levels = torch.tensor(codes, dtype=inputs.dtype, device=inputs.device)
            blocks.append((inputs[:, place, None] == levels).float())
        return torch.cat(blocks, dim=1)


@dataclass(frozen=True)
class Unreadable:
    """The transform of texts, which a network sees only as embeddings."""

    def __call__(self, inputs: Tensor) -> Tensor:
        """Raise ``ValueError``."""
        raise ValueError("texts cannot be inputs of a network; embed them with a model hf:NAME")


def encoded(splits: Splits, numeric: NumericInputs, bins: int) -> Transform:
    """The transform of ``splits`` with its numbers encoded as ``numeric`` says.

    Fitted on the training part. Raises ``ValueError`` for inputs that are not a table's columns.
    """
    transform = splits.transform
    if numeric == "standard":
        return transform
    if not isinstance(transform, TableTransform):
        raise ValueError(f"numeric_inputs: {numeric} encodes the columns of a table; there is none")
    values = transform.filled_blocks(splits.train.inputs)
    match numeric:
        case "robust":
            return replace(transform, numbers=Robust.fit(values))
        case "quantile":
            return replace(transform, numbers=Quantiles.fit(values))
        case "piecewise":
            return replace(transform, numbers=PiecewiseLinear.fit(values, bins))


def on_device(transform: Transform, device: torch.device) -> Transform:
    """The transform with its tensors on a device, so that none is sent there with every batch.

    A user's own, unless it is a dataclass, is returned unchanged.
    """
    moved: Transform = _moved(transform, device)
    return moved


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    parts = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
    return replace(value, **{name: _moved(part, device) for name, part in parts.items()})


def category_blocks(transform: Transform) -> tuple[int, ...]:
    """The sizes of the one-hot blocks that a network's inputs end with; only tables have any."""
    return transform.category_blocks if isinstance(transform, TableTransform) else ()


def _each_column(inputs: Tensor, places: tuple[int, ...]) -> Iterator[Tensor]:
    return (column for block in column_blocks(inputs, places) for column in block.T)


def _filled(values: Tensor, median: Tensor) -> Tensor:
    return torch.where(values.isnan(), median.to(values.device), values)


def _median(column: Tensor) -> float:
    present = column[~column.isnan()].numpy()
    return float(np.median(present)) if present.size else 0.0
