"""A classifier's stored predictions: logits or probabilities with labels, from NPZ, CSV, Parquet.

NPZ: an array ``logits`` (N, K), or ``probs`` or ``probabilities``, and ``labels`` (N); or two
such sets, named ``val_logits``, ``val_labels``, ``test_logits``, ``test_labels``. Tables: a
column of labels, and a column of scores for each class.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.data.paths import check_file
from calibration.data.prediction_files import Found, ScoreKind, npz_parts

LEAST_PROBABILITY = 1e-12
SUM_TOLERANCE = 2.0**-8
MOST_LOGIT = 1e6


@dataclass(frozen=True)
class StoredPredictions:
    """Checked predictions of one file.

    Probabilities have become logits: their logarithms. ``class_names`` are those of the
    file's columns, or the numbers 0…K−1; ``notes`` say what was taken and what was changed.
    """

    name: str
    logits: NDArray[Any]
    labels: NDArray[np.int64] | None
    class_names: tuple[str, ...]
    kind: ScoreKind
    notes: tuple[str, ...]

    @property
    def classes(self) -> int:
        """The number K of classes."""
        return int(self.logits.shape[1])


def read_predictions(path: Path, *, label: str | None = None) -> StoredPredictions:
    """The predictions in a file; labels are ignored, whatever they are.

    Raises ``ValueError`` naming the file, the array or column, and what would be right.
    """
    parts = _found(path, label, labelled=False)
    if len(parts) > 1:
        raise ValueError(
            f"{path}: holds the predictions of two sets, {parts[0].scores_name!r} and "
            f"{parts[1].scores_name!r}; give a file with one"
        )
    return _checked(parts[0], labelled=False)


def read_labelled_predictions(
    path: Path, *, label: str | None = None
) -> tuple[StoredPredictions, StoredPredictions | None]:
    """The labelled predictions in a file, and the test set's if the file holds both.

    Raises ``ValueError`` naming the file, the array or column, and what would be right.
    """
    parts = [_checked(found, labelled=True) for found in _found(path, label, labelled=True)]
    if len(parts) == 1:
        return parts[0], None
    check_same_classes(parts[0], parts[1], f"{path}: val_…", f"{path}: test_…")
    return parts[0], parts[1]


def check_same_classes(
    one: StoredPredictions, other: StoredPredictions, first: str, second: str
) -> None:
    """Raise ``ValueError`` unless both have the same classes in the same order."""
    if one.classes != other.classes:
        raise ValueError(
            f"{first} has {one.classes} classes, but {second} has {other.classes}; "
            "both must come from the same classifier"
        )
    difference = names_differ(one.class_names, other.class_names)
    if difference is not None:
        raise ValueError(
            f"class {difference} is {one.class_names[difference]!r} in {first}, but "
            f"{other.class_names[difference]!r} in {second}; the classes must be the same, in the "
            "same order; in an NPZ they are named by an array class_names"
        )


def names_differ(one: tuple[str, ...], other: tuple[str, ...]) -> int | None:
    """The first class whose names differ.

    Mere numbers 0…K−1 are no names, unless the others are numbers too: a class 1 must not be
    the first in one file and the second in the other.
    """
    numbers = tuple(str(k) for k in range(len(one)))
    for names, others in ((one, other), (other, one)):
        if names == numbers and not any(map(is_number, others)):
            return None
    return next((k for k in range(len(one)) if one[k] != other[k]), None)


def _found(path: Path, label: str | None, *, labelled: bool) -> list[Found]:
    if path.suffix.lower() != ".npz":
        check_file(path)
        from calibration.data.prediction_tables import table_part  # pandas takes a second

        return [table_part(path, label, labelled=labelled)]
    if label is not None:
        raise ValueError(f"{path}: --label names a column of a table; in an NPZ use 'labels'")
    return npz_parts(path, labelled=labelled)


def _checked(found: Found, *, labelled: bool) -> StoredPredictions:
    origin = f"{found.path}: {found.scores_name}"
    scores = _scores(found.scores, origin)
    kind = found.kind or _guessed_kind(scores, origin)
    names = found.class_names or tuple(str(k) for k in range(scores.shape[1]))
    if len(names) != scores.shape[1]:
        raise ValueError(
            f"{found.path}: class_names names {len(names)} classes, but "
            f"{found.scores_name} has {scores.shape[1]}"
        )
    taken = f"{found.path}: {len(scores)} × {scores.shape[1]}, {found.taken} taken as {kind}"
    labels = None
    if labelled:
        labels, reading = _labels(found, names, len(scores))
        taken += f", labels as {reading}"
    notes = [taken, *found.notes]
    logits = scores
    if kind == "probabilities":
        _check_probabilities(scores, origin, found.column)
        logits, least, zeros = _logarithms(scores)
        if zeros:
            notes.append(
                f"{found.path}: {zeros} probabilities of 0, which has no logarithm, count as "
                f"{least:.2g}; stored logits, or more digits, would tell them apart"
            )
    else:
        _check_logits(scores, origin)
    return StoredPredictions(found.path.stem, logits, labels, names, kind, tuple(notes))


def _scores(array: NDArray[Any], origin: str) -> NDArray[Any]:
    """Float32 or float64 (N, K), finite."""
    if array.dtype.kind not in "iuf":
        raise ValueError(f"{origin} must be numbers, found the type {array.dtype}")
    if array.ndim == 1 or (array.ndim == 2 and array.shape[1] == 1):
        raise ValueError(
            f"{origin} must have a column for each class, found the shape {array.shape}; "
            "of two classes store both, e.g. np.stack([1 - p, p], 1)"
        )
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(
            f"{origin} must have the shape (N, K): N rows and K classes; found {array.shape}"
        )
    wide = array.dtype if array.dtype in (np.float32, np.float64) else np.float64
    scores = np.array(array, dtype=wide, order="C")
    bad = ~np.isfinite(scores)
    if bad.any():
        row, column = (int(place) for place in np.argwhere(bad)[0])
        remedy = "" if np.isnan(scores[row, column]) else "; write a large number such as ±100"
        raise ValueError(
            f"{origin} must be finite, found {scores[row, column]} in row {row}, "
            f"class {column} (counted from 0){remedy}"
        )
    return scores


def _guessed_kind(scores: NDArray[Any], origin: str) -> ScoreKind:
    """Rows that are not negative and sum to 1 are probabilities."""
    if scores.min() < 0 or scores.max() > 1 + _SUM_TOLERANCE:
        return "logits"
    sums = scores.sum(1, dtype=np.float64)
    right = np.abs(sums - 1) <= _SUM_TOLERANCE
    if right.all():
        return "probabilities"
    if right.mean() < 0.5:
        return "logits"
    row = int(np.flatnonzero(~right)[0])
    raise ValueError(
        f"{origin} look like probabilities, but row {row} (counted from 0) sums to "
        f"{sums[row]:.6g}; fix it, or call the columns logit_… if they are logits"
    )


def _check_logits(scores: NDArray[Any], origin: str) -> None:
    """Beyond some size the calibrators' powers and products overflow."""
    beyond = np.abs(scores) > MOST_LOGIT
    if beyond.any():
        row, place = (int(at) for at in np.argwhere(beyond)[0])
        raise ValueError(
            f"{origin} must lie within ±{MOST_LOGIT:,.0f}, found {scores[row, place]:.6g} in row "
            f"{row}, class {place} (counted from 0); are these logits? Write ±100 for a class that "
            "is certain or ruled out"
        )


def _check_probabilities(scores: NDArray[Any], origin: str, column: bool) -> None:
    name = "logit_…" if column else "logits"
    if scores.min() < 0:
        row, place = (int(at) for at in np.argwhere(scores < 0)[0])
        raise ValueError(
            f"{origin} must not be negative, found {scores[row, place]:.6g} in row {row}, "
            f"class {place} (counted from 0); if they are logits, call them {name}"
        )
    sums = scores.sum(1, dtype=np.float64)
    wrong = np.flatnonzero(np.abs(sums - 1) > _SUM_TOLERANCE)
    if len(wrong):
        raise ValueError(
            f"{origin} must sum to 1 over the classes, found {sums[wrong[0]]:.6g} in row "
            f"{wrong[0]} (counted from 0); if they are logits, call them {name}"
        )


def _logarithms(scores: NDArray[Any]) -> tuple[NDArray[np.float64], float, int]:
    """log p, float64; what 0 counts as, and how often.

    A 0 is a number too small for the file: it counts as the least that occurs in it, or as
    1e-12 where that is less.
    """
    zeros = scores == 0
    least = min(LEAST_PROBABILITY, float(scores[~zeros].min()))
    logits = np.log(np.maximum(scores.astype(np.float64), least))
    return logits, least, int(zeros.sum())
