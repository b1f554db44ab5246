"""Where in a table of stored predictions the scores and the labels are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from calibration.data.frames import check_names, read_frame
from calibration.data.prediction_files import LABELS, Found, ScoreKind

PREFIXES: dict[str, ScoreKind] = {
    "logit_": "logits",
    "logits_": "logits",
    "prob_": "probabilities",
    "p_": "probabilities",
}
LONE_SCORES = ("logit", "logits", "prob", "probs", "probability", "p")
_REMEDY = "call the columns of scores logit_CLASS or prob_CLASS"
NOT_SCORES = ("id", "index", "row", "predicted", "prediction", "confidence", "class")
"""Columns that tables of predictions often have beside those of the classes."""


def table_part(path: Path, label: str | None, *, labelled: bool) -> Found:
    """The predictions in a CSV or Parquet file.

    Scores are the columns whose names begin with ``logit_``, ``prob_`` or ``p_`` and go on
    with the class. Where there are none, they are the columns of numbers, which must then be
    called like the labels, or 0…K−1 if those are numbers: a column such as an age is not a class.
    Raises ``ValueError`` naming the column that is missing, too many or of the wrong kind.
    """
    frame = read_frame(path)
    if label is not None:
        check_names([label], frame, str(path), "label")
    target = label or _label_column(frame, path, labelled)
    others = [name for name in frame.columns if name != target]
    kind, names, prefix = _prefixed(others)
    if not names:
        values = None
        if labelled and target is not None:
            values = _label_values(frame[target])
        names = _unprefixed(frame, others, values, path)
    if len(names) < 2:
        raise ValueError(
            f"{path}: no columns of scores beside the labels; found {', '.join(frame.columns[:20])}"
            f"; {_REMEDY}"
        )
    for name in names:
        if not types.is_numeric_dtype(frame[name]):
            wrong = next(v for v in frame[name] if not isinstance(v, int | float | np.number))
            raise ValueError(f"{path}: column {name!r} should hold numbers, found {wrong!r}")
        missing = np.flatnonzero(frame[name].isna())
        if len(missing):
            raise ValueError(
                f"{path}: column {name!r} has no value in row {missing[0]} (counted from 0)"
            )
    ignored = [name for name in others if name not in names]
    return Found(
        path=path,
        scores=frame[names].to_numpy(np.float64),
        scores_name=f"columns {names[0]} … {names[-1]}",
        kind=kind,
        labels=None if target is None else _label_values(frame[target]),
        labels_name=f"column {target!r}",
        class_names=tuple(name.removeprefix(prefix) for name in names),
        taken=f"columns {names[0]} … {names[-1]}",
        notes=(f"{path}: not used: {', '.join(ignored)}",) if ignored else (),
        column=True,
    )


def _label_column(frame: pd.DataFrame, path: Path, labelled: bool) -> str | None:
    there = [name for name in frame.columns if name.lower() in LABELS]
    if len(there) == 1 or (there and not labelled):
        return str(there[0])
    if not labelled:
        return None
    if there:
        raise ValueError(
            f"{path}: {' and '.join(map(repr, there))} may both be the labels; name one by --label"
        )
    raise ValueError(
        f"{path}: there is no column 'label', 'labels' or 'y'; name it with --label; found "
        + ", ".join(frame.columns[:20])
    )


def _prefixed(names: list[str]) -> tuple[ScoreKind | None, list[str], str]:
    for prefix, kind in PREFIXES.items():
        found = [name for name in names if name.startswith(prefix) and name != prefix]
        if len(found) > 1:
            return kind, found, prefix
    return None, [], ""


def _unprefixed(
    frame: pd.DataFrame, names: list[str], labels: NDArray[Any] | None, path: Path
) -> list[str]:
    """Columns of scores that no prefix marks; ``labels`` are None where none are wanted."""
    numbers = [
        name
        for name in names
        if types.is_numeric_dtype(frame[name]) and name.lower() not in NOT_SCORES
    ]
    values = set() if labels is None else set(labels.astype(str).tolist())
    if labels is not None and labels.dtype.kind in "bUO" and values <= set(names):
        beside = [name for name in numbers if name not in values]
        if not beside:
            return [name for name in names if name in values]
        raise ValueError(
            f"{path}: no label is {beside[0]!r}, the name of a column of numbers; {_REMEDY} for "
            f"every class, also those that no row has, or leave out what is not a class"
        )
    _check_not_lone(numbers, path, labelled=labels is not None)
    if labels is None or set(numbers) == {str(k) for k in range(len(numbers))}:
        return numbers
    if not numbers:
        return []
    if labels.dtype.kind in "bUO":
        unknown = min(value for value in values if value not in names)
        raise ValueError(
            f"{path}: there is a label {unknown!r}, but no column of that name; found "
            f"{', '.join(numbers[:20])}; {_REMEDY}"
        )
    raise ValueError(
        f"{path}: the labels are numbers, but the columns of numbers are not called "
        f"0…{max(len(numbers), 2) - 1}: found {', '.join(numbers[:20])}; {_REMEDY}"
    )


def _check_not_lone(names: list[str], path: Path, *, labelled: bool) -> None:
    """Raise if one column alone looks like scores: the probability of one of two classes."""
    # Without labels to tell, p may be a class.
    marks = [mark for mark in PREFIXES if labelled or mark != "p_"]
    alone = [name for name in LONE_SCORES if labelled or name != "p"]
    lone = [name for name in names if name.lower() in alone or name.startswith(tuple(marks))]
    if len(lone) != 1:
        return
    other = (
        f"logit_0 = 0 and logit_1 = {lone[0]}"
        if lone[0].lower().startswith("logit")
        else f"prob_0 = 1 − {lone[0]} and prob_1 = {lone[0]}"
    )
    raise ValueError(
        f"{path}: {lone[0]!r} is the only column of scores, and every class needs one; of two "
        f"classes write both: {other}"
    )


def _label_values(column: pd.Series[Any]) -> NDArray[Any]:
    if column.isna().any() and not types.is_numeric_dtype(column):
        # Left to be an unknown class it would be called 'nan'.
        column = column.astype(object).where(column.notna(), "")
    if types.is_bool_dtype(column) or types.is_integer_dtype(column):
        return column.to_numpy()
    if types.is_numeric_dtype(column):
        return column.to_numpy(np.float64, na_value=np.nan)
    return column.astype(str).to_numpy(dtype=str)
