"""Named columns of a table, and their encoding as numbers.

Raw inputs of a table are one float64 tensor: a numeric column holds its value, NaN
where missing; a categorical one the position of its value in the column's
``categories``, or ``MISSING_CODE`` or ``UNKNOWN_CODE``. A text column is the only input; its
raw inputs are bytes (``calibration.data.text_inputs``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from pandas.api import types
from torch import Tensor

from calibration.data.frames import check_names
from calibration.data.text_inputs import encode_texts
from calibration.data.texts import as_text

UNKNOWN_CODE = -1.0
MISSING_CODE = -2.0

MOST_CATEGORIES = 1000
"""Text columns with more distinct values are taken for identifiers or free text."""


class Column(NamedTuple):
    """One input column; ``categories`` are the sorted values of a categorical one, as strings."""

    name: str
    kind: Literal["numeric", "categorical", "text"]
    categories: tuple[str, ...] = ()


def infer_columns(
    frame: pd.DataFrame, names: Iterable[str], categorical: Iterable[str], origin: str
) -> tuple[Column, ...]:
    """Decide which of the columns ``names`` are numeric and which categorical.

    Numbers, booleans and entirely empty columns are numeric; strings are categorical, as
    are the columns named in ``categorical``. Raises ``ValueError`` naming the column
    for anything else (dates, lists) and for more than ``MOST_CATEGORIES`` strings.
    """
    return infer_from_chunks([frame], names, categorical, origin)


def infer_from_chunks(
    chunks: Iterable[pd.DataFrame], names: Iterable[str], categorical: Iterable[str], origin: str
) -> tuple[Column, ...]:
    """``infer_columns`` for a table in several chunks."""
    forced = set(categorical)
    # None as long as all values are numbers.
    found: dict[str, set[str] | None] = {n: set() if n in forced else None for n in names}
    for chunk in chunks:
        for name, known in found.items():
            texts = _texts(chunk[name], name, name in forced, origin)
            if texts is not None:
                together = texts | (known or set())
                _check_number(together, name, origin)
                found[name] = together
    return tuple(
        Column(name, "numeric")
        if texts is None
        else Column(name, "categorical", tuple(sorted(texts)))
        for name, texts in found.items()
    )


def _texts(series: pd.Series[Any], name: str, forced: bool, origin: str) -> set[str] | None:
    """The categories in a column, or None if it is numeric."""
    present = series.dropna()
    if not forced and (_is_number(series) or are_truths(present)):
        return None
    if not (forced or holds_texts(present)):
        raise ValueError(
            f"{origin}: column {name!r} holds {type(present.iloc[0]).__name__} values; "
            "drop it or turn it into numbers or text"
        )
    return {as_text(value) for value in present.unique()}


def _check_number(texts: Collection[str], name: str, origin: str) -> None:
    if len(texts) > MOST_CATEGORIES:
        raise ValueError(
            f"{origin}: text column {name!r} has {len(texts)} distinct values, more than "
            f"{MOST_CATEGORIES}; drop it, group its values, or embed it (option text, and a model "
            "hf:NAME)"
        )


def holds_texts(present: pd.Series[Any]) -> bool:
    """Whether these values, none of them missing, are all strings or categories."""
    if isinstance(present.dtype, pd.StringDtype | pd.CategoricalDtype):
        return True
    return bool(present.map(type).isin((str,)).all())


def are_truths(present: pd.Series[Any]) -> bool:
    """Whether these values, none of them missing, are all true or false."""
    if isinstance(present.dtype, pd.StringDtype):  # without looking at every row
        return present.empty
    return bool(present.map(type).isin((bool, np.bool_)).all())


def _is_number(series: pd.Series[Any]) -> bool:
    dtype = series.dtype
    return types.is_bool_dtype(dtype) or (
        types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype)
    )


def encode_columns(
    frame: pd.DataFrame, columns: tuple[Column, ...], origin: str, first: int = 0
) -> Tensor:
    """Return the raw inputs (N, columns) of ``frame``; other columns are ignored.

    ``first`` is the number of its first row in messages. Raises ``ValueError`` naming a column
    that is absent, infinite or not numeric.
    """
    check_names((column.name for column in columns), frame, origin, "input")
    if columns[0].kind == "text":
        return encode_texts(frame[columns[0].name])
    raw = np.empty((len(frame), len(columns)))
    for position, column in enumerate(columns):
        values = frame[column.name]
        if column.kind == "numeric":
            raw[:, position] = _encode_number(values, column, origin, first)
        else:
            raw[:, position] = _encode_category(values, column)
    return torch.from_numpy(raw)


def _encode_number(
    series: pd.Series[Any], column: Column, origin: str, first: int
) -> NDArray[np.float64]:
    if _is_number(series):
        values = series.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        values = pd.to_numeric(series.astype(object), errors="coerce").to_numpy(np.float64)
        wrong = series[np.isnan(values) & series.notna().to_numpy()]
        if len(wrong):
            raise ValueError(
                f"{origin}: column {column.name!r} should hold numbers, found {wrong.iloc[0]!r}"
            )
    if np.isinf(values).any():
        row = first + int(np.flatnonzero(np.isinf(values))[0])
        raise ValueError(
            f"{origin}: column {column.name!r} is infinite in row {row} (counted from 0); "
            "leave the value out if it is missing"
        )
    return values


def _encode_category(series: pd.Series[Any], column: Column) -> NDArray[np.float64]:
    numbers, distinct = pd.factorize(series)
    positions = {text: float(place) for place, text in enumerate(column.categories)}
    codes = [positions.get(as_text(value), UNKNOWN_CODE) for value in distinct]
    return np.array([*codes, MISSING_CODE])[numbers]  # a missing value has the number −1: the last
