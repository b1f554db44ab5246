"""Groups and weights of the rows of stored predictions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration.data.prediction_files import Found
from calibration.data.roles import read_roles
from calibration.data.texts import as_text


class Described(NamedTuple):
    """The groups of rows, as strings, and their weights; None where there are none."""

    groups: NDArray[np.str_] | None
    weights: NDArray[np.float64] | None
    taken: str


def described_rows(found: Found, labels: NDArray[np.int64], names: tuple[str, ...]) -> Described:
    """The groups and weights in the columns or arrays that the user names.

    Raises ``ValueError`` naming the file, the column and the invalid value: a negative or missing
    weight, a row without a group, only one group, or only one class with weight.
    """
    origin = str(found.path)
    columns = {
        role: pd.Series(_one_per_row(values, name, role, len(labels), origin), name=name)
        for role, (name, values) in found.roles.items()
    }
    (fields,) = read_roles([columns], [origin])
    groups, weights, taken = None, None, ""
    if "group" in columns:
        groups = columns["group"].map(as_text).to_numpy(dtype=str)
        number, name = len(np.unique(groups)), columns["group"].name
        if number < 2:
            raise ValueError(
                f"{origin}, group column {name!r}: all {len(groups)} rows are of group "
                f"{str(groups[0])!r}; at least two groups are needed to cross-fit and to resample"
            )
        taken += f", {number} groups by {name!r}"
    if "weight" in columns:
        weights = fields["weights"].numpy()
        _check_classes(labels[weights > 0], names, f"{origin}, weight column")
        taken += f", weights by {columns['weight'].name!r}"
    return Described(groups, weights, taken)


def _one_per_row(values: Any, name: str, role: str, rows: int, origin: str) -> Any:
    if tuple(values.shape) not in ((rows,), (rows, 1)):
        raise ValueError(
            f"{origin}: {role} array {name!r} must have one value per row ({rows}), found the "
            f"shape {tuple(values.shape)}"
        )
    return np.asarray(values).reshape(rows) if values.ndim == 2 else values


def _check_classes(weighty: NDArray[np.int64], names: tuple[str, ...], origin: str) -> None:
    if (weighty == weighty[0]).all():
        raise ValueError(
            f"{origin}: all rows whose weight is above 0 are of class {names[weighty[0]]!r}; "
            "nothing can be learnt from one class"
        )
