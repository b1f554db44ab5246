"""Class labels of any type, as numbers 0…K−1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from calibration.data.texts import as_text


def class_names_of(values: pd.Series[Any], origin: str) -> tuple[str, ...]:
    """Return the distinct labels as strings: numbers by value, all else in string order.

    Raises ``ValueError`` naming ``origin`` for missing labels, fractions (a regression
    target) and fewer than two classes.
    """
    _check_present(values, origin)
    distinct = list(values.unique())
    numbers = all(isinstance(v, int | float | np.number) for v in distinct)
    fractions = [v for v in distinct if numbers and not float(v).is_integer()]
    if fractions:
        raise ValueError(f"{origin}: a class label cannot be the fraction {fractions[0]}")
    ordered = sorted(distinct) if numbers else sorted(distinct, key=as_text)
    names = tuple(dict.fromkeys(as_text(value) for value in ordered))
    if len(names) < 2:
        raise ValueError(f"{origin}: a classifier needs two classes, found only {names[0]!r}")
    return names


def encode_labels(values: pd.Series[Any], class_names: Sequence[str], origin: str) -> Tensor:
    """Return the positions of the labels in ``class_names``, int64.

    Raises ``ValueError`` naming ``origin`` for missing labels and unknown classes.
    """
    _check_present(values, origin)
    positions = {name: place for place, name in enumerate(class_names)}
    numbers, distinct = pd.factorize(values)
    codes = [positions.get(as_text(value), -1) for value in distinct]
    unknown = [as_text(value) for value, code in zip(distinct, codes, strict=True) if code < 0]
    if unknown:
        raise ValueError(
            f"{origin}: class {unknown[0]!r} does not occur among the training rows' classes "
            f"({', '.join(class_names[:10])}{', …' if len(class_names) > 10 else ''})"
        )
    return torch.from_numpy(np.array(codes, dtype=np.int64)[numbers])


def _check_present(values: pd.Series[Any], origin: str) -> None:
    if not len(values):
        raise ValueError(f"{origin}: there are no rows")
    missing = np.flatnonzero(values.isna().to_numpy())
    if len(missing):
        raise ValueError(
            f"{origin}: the label is missing in {len(missing)} rows, first in row {missing[0]} "
            "(counted from 0; empty, NA, null and None are read as missing); remove these rows"
        )
