"""A classifier's stored predictions: logits or probabilities with labels, from NPZ, CSV, Parquet.

NPZ: an array ``logits`` (N, K), or ``probs`` or ``probabilities``, and ``labels`` (N); or two
such sets, named ``val_logits``, ``val_labels``, ``test_logits``, ``test_labels``. Tables: a
column of labels, and a column of scores for each class. For two classes one score is enough, in
a column or an array (N), if ``Reading`` declares its meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.data.paths import check_file
from calibration.data.prediction_files import Found, Reading, ScoreKind, npz_parts
from calibration.data.prediction_labels import class_numbers, is_number, without_missing
from calibration.data.rounding import SUM_TOLERANCE, logarithms, rounding_of
from calibration.data.single_scores import two_classes
from calibration.text import count

__all__ = ["Reading", "StoredPredictions", "read_labelled_predictions", "read_predictions"]

MOST_LOGIT = 1e6


@dataclass(frozen=True)
class StoredPredictions:
    """Checked predictions of one file.

    Probabilities have been converted to logits by taking logarithms. ``class_names`` are those of
    the file's columns, or the numbers 0…K−1; ``notes`` say what was used and what was changed.
    ``carried`` are the file's other columns or arrays with one value per row; ``score`` is what
    was declared about a single score, if there was one. ``groups`` (N,) names what each row
    belongs to, ``weights`` (N,) is how much it counts; None if the user did not name any.
    ``roles`` are the columns or arrays that they came from.
    """

    name: str
    logits: NDArray[Any]
    labels: NDArray[np.int64] | None
    class_names: tuple[str, ...]
    kind: ScoreKind
    notes: tuple[str, ...]
    carried: Mapping[str, Any] = field(default_factory=dict, repr=False)
    score: dict[str, str] | None = None
    groups: NDArray[np.str_] | None = field(default=None, repr=False)
    weights: NDArray[np.float64] | None = field(default=None, repr=False)
    roles: Mapping[str, str] = field(default_factory=dict)

    @property
    def classes(self) -> int:
        """The number K of classes."""
        return int(self.logits.shape[1])


def read_predictions(path: Path, reading: Reading | None = None) -> StoredPredictions:
    """The predictions in a file; any labels are ignored.

    Raises ``ValueError`` naming the file, the array or column, and what would be right.
    """
    how = reading or Reading()
    parts = _found(path, how, labelled=False)
    if len(parts) > 1:
        raise ValueError(
            f"{path}: holds the predictions of two sets, {parts[0].scores_name!r} and "
            f"{parts[1].scores_name!r}; give a file with one"
        )
    return _checked(parts[0], how, labelled=False)


def read_labelled_predictions(
    path: Path, reading: Reading | None = None
) -> tuple[StoredPredictions, StoredPredictions | None]:
    """The labelled predictions in a file, and those of the test set if the file has both.

    Raises ``ValueError`` naming the file, the array or column, and what would be right.
    """
    how = reading or Reading()
    parts = [_checked(found, how, labelled=True) for found in _found(path, how, labelled=True)]
    if len(parts) == 1:
        return parts[0], None
    check_both(parts[0], parts[1], f"{path}: val_…", f"{path}: test_…")
    return parts[0], parts[1]


def check_both(one: StoredPredictions, other: StoredPredictions, first: str, second: str) -> None:
    """Raise ``ValueError`` unless the classes and their order agree and no group is in both.

    A calibrator evaluated on a group that it was fitted on would not be tested on new groups.
    """
    if one.groups is not None and other.groups is not None:
        shared = np.intersect1d(one.groups, other.groups)
        if len(shared):
            number = count(len(shared), "such group")
            raise ValueError(
                f"{second}: group {str(shared[0])!r} is also in {first} ({number}); divide the "
                "rows by groups, or give all of them as one file, which is cross-fitted by groups"
            )
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
    """The first class whose name differs.

    Plain numbers 0…K−1 do not count as names, unless the others are numbers too: a class 1 must
    not come first in one file and second in the other.
    """
    numbers = tuple(str(k) for k in range(len(one)))
    for names, others in ((one, other), (other, one)):
        if names == numbers and not any(map(is_number, others)):
            return None
    return next((k for k in range(len(one)) if one[k] != other[k]), None)


def _found(path: Path, reading: Reading, *, labelled: bool) -> list[Found]:
    if path.suffix.lower() != ".npz":
        check_file(path)
        from calibration.data.prediction_tables import table_part  # importing pandas takes a second

        return [table_part(path, reading, labelled=labelled)]
    if reading.label is not None:
        raise ValueError(f"{path}: --label names a column of a table; in an NPZ use 'labels'")
    return npz_parts(path, reading, labelled=labelled)


def _checked(found: Found, reading: Reading, *, labelled: bool) -> StoredPredictions:
    left_out = ""
    if not found.is_single and (found.scores.ndim != 2 or 0 in found.scores.shape):
        raise ValueError(
            f"{found.path}: {found.scores_name} must have the shape (N, K): N rows and K classes; "
            f"found {found.scores.shape}"
        )
    if labelled:
        found, left_out = without_missing(found, len(found.scores), drop=reading.drop_unlabelled)
    made = _single(found, reading) if found.is_single else _of_every_class(found, reading)
    scores, names, kind, taken, notes = made
    taken = f"{found.path}: {len(scores)} × {scores.shape[1]}, {taken}"
    labels, groups, weights = None, None, None
    if labelled:
        labels, way = class_numbers(found, names)
        taken += f", labels as {way}"
    if labels is not None and found.roles:
        from calibration.data.prediction_roles import described_rows  # importing pandas: a second

        groups, weights, of_rows = described_rows(found, labels, names)
        taken += of_rows
    said = [taken, *found.notes, *([left_out] if left_out else []), *notes]
    logits = scores
    if kind == "probabilities":
        logits, changes = logarithms(scores, found.path)
        said += changes
    else:
        _check_logits(scores, f"{found.path}: {found.scores_name}")
    declared = None
    if found.is_single:
        declared = dict(zip(("kind", "positive"), map(str, reading.single), strict=True))
    return StoredPredictions(
        *(found.path.stem, logits, labels, names, kind, tuple(said), found.carried, declared),
        groups=groups,
        weights=weights,
        roles=reading.roles,
    )


_Made = tuple[NDArray[Any], tuple[str, ...], ScoreKind, str, tuple[str, ...]]


def _single(found: Found, reading: Reading) -> _Made:
    both = two_classes(found, reading)
    return both.scores, both.names, both.kind, both.taken, both.notes


def _of_every_class(found: Found, reading: Reading) -> _Made:
    origin = f"{found.path}: {found.scores_name}"
    if reading.kind is not None or reading.positive is not None:
        raise ValueError(
            f"{origin}: there is a score for each class; leave out --score-kind and --positive, "
            "which are for one score per row"
        )
    scores = _scores(found.scores, origin)
    kind = found.kind or _guessed_kind(scores, origin)
    names = found.class_names or tuple(str(k) for k in range(scores.shape[1]))
    if len(names) != scores.shape[1]:
        raise ValueError(
            f"{found.path}: class_names names {len(names)} classes, but "
            f"{found.scores_name} has {scores.shape[1]}"
        )
    if kind == "probabilities":
        _check_probabilities(scores, origin, found.column)
    return scores, names, kind, f"{found.taken} taken as {kind}", ()


def _scores(array: NDArray[Any], origin: str) -> NDArray[Any]:
    """Float32 or float64 (N, K), finite."""
    if array.dtype.kind not in "iuf":
        raise ValueError(f"{origin} must be numbers, found the type {array.dtype}")
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
    """Non-negative rows that sum to 1 are probabilities."""
    if scores.min() < 0 or scores.max() > 1 + SUM_TOLERANCE:
        return "logits"
    sums = scores.sum(1, dtype=np.float64)
    right = np.abs(sums - 1) <= rounding_of(scores).tolerance(scores.shape[1])
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
    """Reject logits so large that the calibrators' powers and products would overflow."""
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
    allowed = rounding_of(scores).tolerance(scores.shape[1])
    wrong = np.flatnonzero(np.abs(sums - 1) > allowed)
    if len(wrong):
        raise ValueError(
            f"{origin} must sum to 1 over the classes, found {sums[wrong[0]]:.6g} in row "
            f"{wrong[0]} (counted from 0); if they are logits, call them {name}"
        )
