"""Columns that say which rows belong together (groups, times, folds) and how much they count.

They are never inputs. Their values are checked when the data is read, with the names that the
user knows; what the parts lack because of them is checked when the parts are made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from pandas.api import types
from torch import Tensor

from calibration.data.columns import holds_texts
from calibration.data.dataset import FOLD_NAMES, DatasetOptions, Part
from calibration.data.texts import as_text

_Column = pd.Series  # of any type: a table's column or an array of an NPZ file
_Reader = Callable[[Sequence[_Column], Sequence[str]], Sequence[NDArray[Any]]]


class Roles(NamedTuple):
    """The name of the column for each role, None where there is none."""

    group: str | None = None
    time: str | None = None
    fold: str | None = None
    weight: str | None = None

    @property
    def named(self) -> dict[str, str]:
        """The column of each role that is assigned."""
        return {role: name for role, name in self._asdict().items() if name is not None}


def check_roles(roles: Roles, origin: str, others: Mapping[str, str]) -> None:
    """Raise ``ValueError`` for incompatible roles, or a column with two roles.

    ``others`` are columns with another use, and that use.
    """
    if roles.time is not None and (roles.fold is not None or roles.group is not None):
        other = "fold" if roles.fold is not None else "group"
        why = (
            "a fold column gives the parts itself"
            if other == "fold"
            else "rows of one group lie before and after any moment"
        )
        raise ValueError(
            f"{origin}: 'time' and {other!r} cannot be together: {why}; leave one out, or write "
            "the parts into a column and name it with 'fold' (which may be used with 'group')"
        )
    used = dict(others)
    for role, name in roles.named.items():
        if name in used:
            raise ValueError(f"{origin}: column {name!r} cannot be both {used[name]} and {role}")
        used[name] = role


def check_fold_alone(options: DatasetOptions, origin: str) -> None:
    """Raise ``ValueError`` if options besides ``fold`` say which rows are test data."""
    set_here = options.model_fields_set & {"test_path", "test_share"}
    if "fold" in options.model_fields_set and getattr(options, "fold", None) and set_here:
        raise ValueError(
            f"{origin}: 'fold' says which rows are test data; leave {min(set_here)!r} out"
        )


def read_roles(
    columns: Sequence[Mapping[str, _Column]], origins: Sequence[str]
) -> list[dict[str, Tensor]]:
    """Fields of ``Part`` for the rows, and for the test part if it has its own file.

    ``columns`` has the column of each role for either, ``origins`` their names in errors.
    Raises ``ValueError`` for values not valid in their role, a group in two parts, and test
    rows that are not later than all others.
    """
    found: list[dict[str, Tensor]] = [{} for _ in columns]
    readers: dict[str, tuple[str, _Reader]] = {
        "group": ("groups", _groups),
        "time": ("times", _times),
        "fold": ("folds", _folds),
        "weight": ("weights", _weights),
    }
    for role in columns[0]:
        named = [
            f"{origin}, {role} column {part[role].name!r}"
            for part, origin in zip(columns, origins, strict=True)
        ]
        for part, where in zip(columns, named, strict=True):
            _check_present(part[role], where, role)
        field, read = readers[role]
        values = read([part[role] for part in columns], named)
        for fields, of_part in zip(found, values, strict=True):
            fields[field] = torch.tensor(of_part)
    if "fold" in columns[0] and "group" in columns[0]:
        _check_groups(columns[0]["group"], columns[0]["fold"], origins[0])
    if len(found) == 2:
        _check_files(columns, found, origins)
    return found


def _check_present(column: _Column, where: str, role: str) -> None:
    missing = np.flatnonzero(column.isna().to_numpy())
    if len(missing):
        raise ValueError(
            f"{where}: {len(missing)} rows have no {role}, first row {missing[0]} (counted from "
            "0); fill them in or remove these rows"
        )


def _groups(columns: Sequence[_Column], named: Sequence[str]) -> list[NDArray[np.int64]]:
    texts = [column.map(as_text) for column in columns]
    codes, _ = pd.factorize(pd.concat(texts, ignore_index=True))
    return _divided(codes.astype(np.int64), columns)


def _times(columns: Sequence[_Column], named: Sequence[str]) -> list[NDArray[np.int64]]:
    stamps = np.concatenate([_stamps(c, where) for c, where in zip(columns, named, strict=True)])
    _, ranks = np.unique(stamps, return_inverse=True)
    return _divided(ranks.astype(np.int64), columns)


def _stamps(column: _Column, where: str) -> NDArray[Any]:
    """Numbers unchanged, dates as numbers. Raises ``ValueError`` for values without an order."""
    if types.is_bool_dtype(column.dtype):
        raise ValueError(f"{where}: true and false have no order in time; write numbers or dates")
    if types.is_numeric_dtype(column.dtype):
        values = column.to_numpy()
        if not np.isfinite(values.astype(np.float64)).all():
            raise ValueError(f"{where}: times must be finite")
        return values.astype(np.float64) if values.dtype.kind == "f" else values.astype(np.int64)
    # Only unambiguous dates: 03/04/2020 may be in March or in April.
    form = "ISO8601" if holds_texts(column) else None
    parsed = pd.to_datetime(column, utc=True, errors="coerce", format=form)
    wrong = column[parsed.isna()]
    if len(wrong):
        raise ValueError(
            f"{where}: {as_text(wrong.iloc[0])!r} cannot be put in order; write numbers, or dates "
            "like 2024-03-31 or 2024-03-31T12:00"
        )
    return np.asarray(parsed.astype("datetime64[ns, UTC]").astype(np.int64))


def _folds(columns: Sequence[_Column], named: Sequence[str]) -> list[NDArray[np.int64]]:
    places = columns[0].map(as_text).map({name: place for place, name in enumerate(FOLD_NAMES)})
    unknown = columns[0][places.isna()]
    if len(unknown):
        raise ValueError(
            f"{named[0]}: unknown part {as_text(unknown.iloc[0])!r}; write "
            f"{', '.join(FOLD_NAMES[:3])}, or {FOLD_NAMES[3]} for rows that methods with held-out "
            "data learn from"
        )
    codes: NDArray[np.int64] = np.asarray(places, dtype=np.int64)
    absent = [name for place, name in enumerate(FOLD_NAMES[:3]) if not (codes == place).any()]
    if absent:
        raise ValueError(
            f"{named[0]}: no row is in {absent[0]!r}; each of {FOLD_NAMES[:3]} needs some"
        )
    return [codes]


def _weights(columns: Sequence[_Column], named: Sequence[str]) -> list[NDArray[np.float64]]:
    return [_numbers(column, where) for column, where in zip(columns, named, strict=True)]


def _numbers(column: _Column, where: str) -> NDArray[np.float64]:
    """Weights unchanged. Raises ``ValueError`` for values that are not valid weights."""
    values: NDArray[np.float64] = np.asarray(
        pd.to_numeric(column.astype(object), errors="coerce"), dtype=np.float64
    )
    wrong = np.flatnonzero(~np.isfinite(values) | (values < 0))
    if len(wrong):
        raise ValueError(
            f"{where}: found {as_text(column.iloc[wrong[0]])!r} in row {wrong[0]} (counted from "
            "0); weights are finite numbers, 0 or more: correct them or remove these rows"
        )
    if not values.any():
        raise ValueError(f"{where}: all {len(values)} weights are 0; at least one row must count")
    return values


def _check_groups(groups: _Column, folds: _Column, origin: str) -> None:
    texts = groups.map(as_text)
    parts = folds.map(as_text).groupby(texts).nunique()
    torn = parts.index[parts > 1]
    if len(torn):
        where = sorted(folds.map(as_text)[texts == torn[0]].unique())
        raise ValueError(
            f"{origin}: group {torn[0]!r} is in {' and '.join(where)} by column {folds.name!r}; "
            f"all rows of a group belong in one part ({len(torn)} such groups)"
        )


def _check_files(
    columns: Sequence[Mapping[str, _Column]],
    found: Sequence[Mapping[str, Tensor]],
    origins: Sequence[str],
) -> None:
    """Check the roles of a test part in its own file."""
    (rows, test), (first, second) = found, columns
    if "group" in first:
        shared = np.isin(test["groups"].numpy(), rows["groups"].numpy())
        if shared.any():
            name = as_text(second["group"][shared].iloc[0])
            raise ValueError(
                f"{origins[1]}: group {name!r} is also in {origins[0]}; no group may be both in "
                "the test part and outside it"
            )
    if "time" in first and int(test["times"].min()) <= int(rows["times"].max()):
        raise ValueError(
            f"{origins[1]}: the test rows must be later than all of {origins[0]}, but begin at "
            f"{as_text(second['time'].min())!r}, and those end at {as_text(first['time'].max())!r}"
        )


def _divided(values: NDArray[np.int64], columns: Sequence[_Column]) -> list[NDArray[np.int64]]:
    return np.split(values, np.cumsum([len(column) for column in columns])[:-1])


def check_part(part: Part, what: str, class_names: Sequence[str], *, judges: bool) -> None:
    """Raise ``ValueError`` naming ``what`` if the part lacks what its use requires.

    A training part needs every class. One that ``judges`` needs at least two classes, and two
    groups or times, or nothing could be cross-fitted or resampled. Rows without groups or times
    are drawn so that this always holds; rows without weight do not count.
    """
    if not part.described:
        return
    if part.weights is not None:
        if not bool(part.weights.any()):
            raise ValueError(
                f"{what} has {len(part.labels)} rows, and all of their weights are 0; change the "
                "weights, the parts or their shares"
            )
        part = part.take(part.weights > 0)
    present = part.labels.unique()
    if judges and len(present) < 2:
        only = [class_names[int(place)] for place in present]
        raise ValueError(
            f"{what} has {len(part.labels)} rows, all of class {only[0]!r}; at least two classes "
            "are needed to judge a classifier: change the parts or their shares"
        )
    missing = [name for place, name in enumerate(class_names) if place not in present.tolist()]
    if missing and not judges:
        raise ValueError(
            f"{what} has no row of class {missing[0]!r}; every class must be there to be learned: "
            "change the parts, or leave out that class"
        )
    for values, word in ((part.groups, "group"), (part.times, "time")):
        if judges and values is not None and len(values.unique()) < 2:
            raise ValueError(
                f"{what} has {len(values)} rows of one {word}; at least two are needed: more "
                f"{word}s, or another share"
            )
