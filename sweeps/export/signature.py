"""The MLflow signature of a model's inputs and outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration.data import Column
from calibration.data.saving import load_transform
from calibration.data.transforms import TableTransform
from calibration.deployment import Description

if TYPE_CHECKING:
    from mlflow.models import ModelSignature


def signature(description: Description) -> ModelSignature:
    """The inputs by name or number, images as a tensor; and the columns that come out.

    Columns are declared without a type: MLflow does not accept integers for a column declared as
    float, yet a CSV column is read as either, depending on whether a value is missing. The
    classifier checks values itself, as in training.
    """
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema, TensorSpec
    from mlflow.types.schema import AnyType, Array

    inputs = description.inputs
    anything = AnyType()  # type: ignore[no-untyped-call]
    given: list[ColSpec | TensorSpec]
    if len(inputs.shape) > 1:
        given = [TensorSpec(np.dtype(inputs.dtype), (-1, *inputs.shape))]
    elif inputs.by_position:
        given = [ColSpec(anything) for _ in range(inputs.shape[0])]
    else:
        given = [
            ColSpec(anything, column.name, required=column.name not in inputs.optional)
            for column in inputs.columns
        ]
    returned: list[ColSpec | TensorSpec] = [
        ColSpec(DataType.string, "class"),
        ColSpec(DataType.double, "confidence"),
        ColSpec(Array(DataType.double), "probabilities", required=False),
        ColSpec(DataType.boolean, "abstain"),
    ]
    return ModelSignature(inputs=Schema(given), outputs=Schema(returned))


def example(description: Description) -> pd.DataFrame | NDArray[Any]:
    """One artificial input, of the training data's middle values: no real row is disclosed."""
    inputs = description.inputs
    if inputs.by_position:
        return np.zeros((1, *inputs.shape), dtype=inputs.dtype)
    transform = load_transform(description.transform)
    middle: dict[int, float] = {}
    if isinstance(transform, TableTransform):
        middle = dict(zip(transform.numeric, transform.median.tolist(), strict=True))
    row = {
        column.name: _middle_value(column, middle.get(place, 0.0))
        for place, column in enumerate(inputs.columns)
    }
    return pd.DataFrame([row])


def _middle_value(column: Column, number: float) -> float | str:
    if column.kind == "numeric":
        return number
    return column.categories[0] if column.categories else "a text"
