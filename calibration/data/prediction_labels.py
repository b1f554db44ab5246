"""The labels of stored predictions: class numbers, names, and missing ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.data.prediction_files import Found

LEAST_ROWS = 10


def given_labels(found: Found, rows: int) -> NDArray[Any]:
    """One label for each row, including missing ones, as stored in the file."""
    origin = f"{found.path}: {found.labels_name}"
    labels = found.labels
    if labels is None:  # the readers have required them
        raise ValueError(f"{found.path}: there are no labels")
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim == 2 and labels.shape[0] == rows:
        raise ValueError(
            f"{origin} must be class numbers (N,), found the shape {labels.shape}; "
            "of one-hot rows store labels.argmax(1)"
        )
    if labels.shape != (rows,):
        raise ValueError(
            f"{origin} must be one class number per row, shape ({rows},), found {labels.shape}"
        )
    return labels


def without_missing(found: Found, rows: int, *, drop: bool) -> tuple[Found, str]:
    """The rows that have a label, and what to say of the others.

    Raises ``ValueError`` if there are others and they are not to be dropped, or if all are.
    """
    labels = given_labels(found, rows)
    missing = _missing(labels)
    number = int(missing.sum())
    if not number:
        return replace(found, labels=labels), ""
    origin = f"{found.path}: {found.labels_name}"
    if number == rows:
        raise ValueError(f"{origin}: no row has a label")
    if not drop:
        raise ValueError(
            f"{origin}: {number} of {rows} labels are missing, the first in row "
            f"{int(missing.argmax())} (counted from 0); leave these rows out with "
            "--missing-labels drop, or fill the labels in"
        )
    kept = labels[~missing]
    if kept.dtype.kind == "f" and (kept == np.rint(kept)).all():
        kept = kept.astype(np.int64)  # integers, turned into floats by missing ones
    said = f"{found.path}: {number} of {rows} rows have no label and are left out"
    roles = {role: (name, values[~missing]) for role, (name, values) in found.roles.items()}
    return replace(found, labels=kept, scores=found.scores[~missing], roles=roles), said


def _missing(labels: NDArray[Any]) -> NDArray[np.bool_]:
    if labels.dtype.kind == "f":
        return np.asarray(np.isnan(labels))
    if labels.dtype.kind in "US":
        return np.asarray(labels == labels.dtype.type(""))
    return np.zeros(len(labels), dtype=bool)


def class_numbers(found: Found, names: tuple[str, ...]) -> tuple[NDArray[np.int64], str]:
    """Class numbers (N,), and how labels were read: as names or as the numbers 0…K−1."""
    origin = f"{found.path}: {found.labels_name}"
    labels = given_labels(found, len(found.scores))
    rows = len(labels)
    codes, reading = _codes(labels, names, origin, found.column)
    if rows < LEAST_ROWS:
        raise ValueError(f"{origin}: {rows} rows are too few to fit or judge anything on")
    if (codes == codes[0]).all():
        raise ValueError(
            f"{origin}: all {rows} rows are of class {names[codes[0]]!r}; "
            "nothing can be learnt from one class"
        )
    return codes, reading


def _codes(
    labels: NDArray[Any], names: tuple[str, ...], origin: str, column: bool
) -> tuple[NDArray[np.int64], str]:
    """Class numbers, and a text on how the labels were read.

    Only the class names decide how, never the labels that happen to occur, or two files of one
    classifier might be read differently. Numeric labels are class numbers, unless the class
    names are themselves numbers.
    """
    if labels.dtype.kind == "f":
        raise ValueError(
            f"{origin} must be whole numbers, found the type {labels.dtype}; "
            "store them as integers, e.g. labels.astype(int)"
        )
    if labels.dtype.kind not in "biuOUST":
        raise ValueError(f"{origin} must be class numbers or names, found {labels.dtype}")
    if labels.dtype.kind == "b" and not {"True", "False"} & set(names):
        labels = labels.astype(np.int64)
    counted = set(names) == {str(k) for k in range(len(names))}
    numbers, last = labels.dtype.kind in "iu", len(names) - 1
    if numbers and (counted or not any(map(is_number, names))):
        wrong = labels[(labels < 0) | (labels >= len(names))]
        if len(wrong):
            raise ValueError(
                f"{origin} must lie in 0…{last} for {len(names)} classes, found "
                f"{wrong[0]}" + ("; are they counted from 1?" if labels.min() == 1 else "")
            )
        if not counted:
            return labels.astype(np.int64), f"class numbers 0…{last}"
    texts, where = np.unique(labels.astype(str), return_inverse=True)
    places = {name: place for place, name in enumerate(names)}
    shown = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
    unknown = next((str(text) for text in texts if text not in places), None)
    if unknown is None:
        codes = np.array([places[text] for text in texts], dtype=np.int64)[where]
        in_order = counted and list(names) == sorted(names, key=int)
        return codes, f"class numbers 0…{last}" if in_order else f"class names {shown}"
    if numbers:
        rename = f"call the columns …_0 to …_{last}" if column else f"make class_names 0 to {last}"
        raise ValueError(
            f"{origin}: found {unknown}, which is none of the classes {shown}; write their names "
            f"as labels, or, if labels are class numbers 0…{last}, {rename}"
        )
    raise ValueError(f"{origin}: {unknown!r} is none of the classes {shown}")


def is_number(name: str) -> bool:
    """Whether a class name might be what a numeric label means."""
    if name.lower() in ("true", "false"):
        return True
    try:
        float(name)
    except ValueError:
        return False
    return True
