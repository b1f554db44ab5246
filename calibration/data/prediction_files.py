"""Where in a file of stored predictions the scores and the labels are."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from calibration.data.columns import check_names
from calibration.data.table import read_frame

Kind = Literal["logits", "probabilities"]

SCORES: dict[str, Kind] = {
    "logits": "logits",
    "probs": "probabilities",
    "probabilities": "probabilities",
}
LABELS = ("labels", "label", "y")
VALIDATION = ("val_", "validation_", "valid_")
TEST = "test_"
PREFIXES: dict[str, Kind] = {
    "logit_": "logits",
    "logits_": "logits",
    "prob_": "probabilities",
    "p_": "probabilities",
}
NOT_SCORES = ("id", "index", "row", "predicted", "prediction", "confidence", "class")
"""Columns that tables of predictions often have beside those of the classes."""


@dataclass(frozen=True)
class Found:
    """Arrays as they lie in a file, not yet checked; ``kind`` is None where it is not said."""

    path: Path
    scores: NDArray[Any]
    scores_name: str
    kind: Kind | None
    labels: NDArray[Any] | None
    labels_name: str
    class_names: tuple[str, ...] | None
    taken: str
    notes: tuple[str, ...] = ()
    column: bool = False


def npz_parts(path: Path, *, labelled: bool) -> list[Found]:
    """The one set of predictions in an NPZ file, or the validation and the test set.

    Nothing is unpickled. Raises ``ValueError`` if the file is damaged or arrays are missing.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            if not isinstance(stored, np.lib.npyio.NpzFile):
                raise ValueError("it holds one nameless array; use np.savez(file, logits=…)")
            content = dict(stored)
    except (ValueError, OSError, EOFError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: not a readable NPZ file of plain arrays: {error}") from error
    for prefix in VALIDATION:
        if any(f"{prefix}{name}" in content for name in SCORES):
            if not any(f"{TEST}{name}" in content for name in SCORES):
                return [_npz_part(path, content, prefix, labelled)]
            return [_npz_part(path, content, start, labelled) for start in (prefix, TEST)]
    return [_npz_part(path, content, "", labelled)]


def _npz_part(path: Path, content: dict[str, NDArray[Any]], prefix: str, labelled: bool) -> Found:
    there = [prefix + name for name in SCORES if prefix + name in content]
    if not there:
        raise ValueError(
            f"{path}: there is neither {prefix + 'logits'!r} nor {prefix + 'probs'!r}; found "
            f"{', '.join(sorted(content)) or 'nothing'}"
        )
    label = next((prefix + name for name in LABELS if prefix + name in content), None)
    if labelled and label is None:
        raise ValueError(
            f"{path}: there is no array {prefix + 'labels'!r} beside {there[0]!r}; found "
            f"{', '.join(sorted(content))}"
        )
    named = content.get("class_names")
    return Found(
        path=path,
        scores=content[there[0]],
        scores_name=there[0],
        kind=SCORES[there[0].removeprefix(prefix)],
        labels=None if label is None else _decoded(content[label]),
        labels_name=label or "",
        class_names=None if named is None else tuple(str(name) for name in _decoded(named)),
        taken=f"array {there[0]!r}",
        notes=tuple(f"{path}: {name!r} is not used beside {there[0]!r}" for name in there[1:]),
    )


def _decoded(array: NDArray[Any]) -> NDArray[Any]:
    """Texts stored as bytes, as texts."""
    return np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array


def table_part(path: Path, label: str | None, *, labelled: bool) -> Found:
    """The predictions in a CSV or Parquet file.

    Scores are the columns whose names begin with ``logit_``, ``prob_`` or ``p_`` and go on
    with the class; where there are none, all columns of numbers but the labels'. Raises
    ``ValueError`` naming the column that is missing or of the wrong kind.
    """
    frame = read_frame(path)
    if label is not None:
        check_names([label], frame, str(path), "label")
    target = label or _label_column(frame, path, labelled)
    others = [name for name in frame.columns if name != target]
    kind, names, prefix = _score_columns(frame, others)
    if len(names) < 2:
        raise ValueError(
            f"{path}: no columns of scores beside the labels; found {', '.join(frame.columns[:20])}"
            "; call them logit_CLASS or prob_CLASS"
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
        f"{path}: there is no column 'label', 'labels' or 'y'; name it by --label; found "
        + ", ".join(frame.columns[:20])
    )


def _score_columns(frame: pd.DataFrame, names: list[str]) -> tuple[Kind | None, list[str], str]:
    for prefix, kind in PREFIXES.items():
        found = [name for name in names if name.startswith(prefix) and name != prefix]
        if len(found) > 1:
            return kind, found, prefix
    numbers = [
        name
        for name in names
        if types.is_numeric_dtype(frame[name]) and name.lower() not in NOT_SCORES
    ]
    return None, numbers, ""


def _label_values(column: pd.Series[Any]) -> NDArray[Any]:
    if column.isna().any() and not types.is_numeric_dtype(column):
        # Left to be an unknown class it would be called 'nan'.
        column = column.astype(object).where(column.notna(), "")
    if types.is_bool_dtype(column) or types.is_integer_dtype(column):
        return column.to_numpy()
    if types.is_numeric_dtype(column):
        return column.to_numpy(np.float64, na_value=np.nan)
    return column.astype(str).to_numpy(dtype=str)
