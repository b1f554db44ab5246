"""Where in a table of stored predictions the scores and the labels are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from calibration.data.frames import check_names, read_frame, read_texts
from calibration.data.prediction_files import LABELS, Found, Reading, ScoreKind

PREFIXES: dict[str, ScoreKind] = {
    "logit_": "logits",
    "logits_": "logits",
    "prob_": "probabilities",
    "p_": "probabilities",
}
LONE_SCORES = ("logit", "logits", "prob", "probs", "probability", "p", "score", "scores")
_REMEDY = "call the columns of scores logit_CLASS or prob_CLASS"
NOT_SCORES = ("id", "index", "row", "predicted", "prediction", "confidence", "class")
"""Columns that tables of predictions often have besides the scores of the classes."""


def table_part(path: Path, reading: Reading, *, labelled: bool) -> Found:
    """The predictions in a CSV or Parquet file.

    Scores are the columns named ``logit_``, ``prob_`` or ``p_`` followed by the class. Without
    any, they are the numeric columns, which must then be named like the labels, or 0…K−1 if
    those are numbers: a column such as an age is not a class. A single one is taken as the score
    of a binary problem. Raises ``ValueError`` naming the column that is missing, superfluous or
    of the wrong kind.
    """
    frame = read_frame(path)
    for role, given in {"label": reading.label, "score": reading.score, **reading.roles}.items():
        if given is not None:
            check_names([given], frame, str(path), role)
    target = reading.label or _label_column(frame, path, labelled)
    if reading.roles:
        from calibration.data.roles import Roles, check_roles  # importing torch takes seconds

        used_otherwise = {target: "the labels", reading.score: "the score"}
        named = {name: use for name, use in used_otherwise.items() if name}
        check_roles(Roles(**reading.roles), str(path), named)
    described = {role: (name, frame[name]) for role, name in reading.roles.items()}
    no_scores = {target, *reading.roles.values(), *reading.aside}
    others = [name for name in frame.columns if name not in no_scores]
    kind, names, prefix = _score_columns(frame, others, target, path, reading, labelled)
    if not names:
        raise ValueError(
            f"{path}: no columns of scores beside the labels; found {', '.join(frame.columns[:20])}"
            f"; {_REMEDY}"
        )
    _check_numbers(frame, names, path)
    used = {*names, target, *reading.roles.values()}
    ignored = [name for name in frame.columns if name not in used]
    kept = ignored if target is None else [*ignored, target]
    single = len(names) == 1
    shown = f"column {names[0]!r}" if single else f"columns {names[0]} … {names[-1]}"
    unused = () if not ignored else (f"{path}: not used: {', '.join(ignored)}",)
    return Found(
        path=path,
        scores=frame[names].to_numpy(np.float64),
        scores_name=shown,
        kind=kind,
        labels=None if target is None or not labelled else _label_values(frame[target]),
        labels_name=f"column {target!r}",
        class_names=None if single else tuple(name.removeprefix(prefix) for name in names),
        taken=shown,
        notes=unused if labelled else (),
        column=True,
        # With labels something is fitted, and no rows are written for other columns to stay with.
        carried={} if labelled else read_texts(path, frame, kept),
        roles=described,
    )


def _score_columns(
    frame: pd.DataFrame,
    others: list[str],
    target: str | None,
    path: Path,
    reading: Reading,
    labelled: bool,
) -> tuple[ScoreKind | None, list[str], str]:
    """The columns of scores, their kind if it is known, and the prefix of the class names."""
    if reading.score is not None:
        return None, [reading.score], ""
    kind, names, prefix = _prefixed(others)
    if names:
        return kind, names, prefix
    numbers = [
        name
        for name in others
        if types.is_numeric_dtype(frame[name]) and name.lower() not in NOT_SCORES
    ]
    values = _label_values(frame[target]) if labelled and target is not None else None
    lone = _lone(numbers, values, reading)
    if lone is not None:
        return None, [lone], ""
    if reading.declares_score:
        raise ValueError(
            f"{path}: which column is the score? Name it with --score; found "
            f"{', '.join(numbers[:20]) or 'no column of numbers'}"
        )
    return None, _unprefixed(numbers, others, values, path), ""


def _check_numbers(frame: pd.DataFrame, names: list[str], path: Path) -> None:
    for name in names:
        if not types.is_numeric_dtype(frame[name]):
            wrong = next(v for v in frame[name] if not isinstance(v, int | float | np.number))
            raise ValueError(f"{path}: column {name!r} should hold numbers, found {wrong!r}")
        missing = np.flatnonzero(frame[name].isna())
        if len(missing):
            raise ValueError(
                f"{path}: column {name!r} has no value in row {missing[0]} (counted from 0)"
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
    numbers: list[str], names: list[str], labels: NDArray[Any] | None, path: Path
) -> list[str]:
    """Columns of scores without a prefix; ``labels`` is None if none are needed."""
    values = set() if labels is None else set(labels.astype(str).tolist()) - {""}
    if labels is not None and labels.dtype.kind in "bUO" and values <= set(names):
        beside = [name for name in numbers if name not in values]
        if not beside:
            return [name for name in names if name in values]
        raise ValueError(
            f"{path}: no label is {beside[0]!r}, the name of a column of numbers; {_REMEDY} for "
            f"every class, also those that no row has, or leave out what is not a class"
        )
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


def _lone(numbers: list[str], labels: NDArray[Any] | None, reading: Reading) -> str | None:
    """The one column that looks like scores, or is the only numeric one."""
    if labels is not None and labels.dtype.kind in "bUO":
        values = set(labels.astype(str).tolist()) - {""}
        if values <= set(numbers):  # columns named like the classes
            return None
    # Without labels to decide, p may be a class.
    told = labels is not None or reading.single != (None, None)
    marks = [mark for mark in PREFIXES if told or mark != "p_"]
    alone = [name for name in LONE_SCORES if told or name != "p"]
    lone = [name for name in numbers if name.lower() in alone or name.startswith(tuple(marks))]
    if len(lone) == 1:
        return lone[0]
    return numbers[0] if len(numbers) == 1 else None


def _label_values(column: pd.Series[Any]) -> NDArray[Any]:
    if column.isna().any() and not types.is_numeric_dtype(column):
        # Otherwise it would be reported as an unknown class 'nan'.
        column = column.astype(object).where(column.notna(), "")
    if types.is_bool_dtype(column) or types.is_integer_dtype(column):
        return column.to_numpy()
    if types.is_numeric_dtype(column):
        return column.to_numpy(np.float64, na_value=np.nan)
    return column.astype(str).to_numpy(dtype=str)
