"""Check that a user's own dataset is the same when it is read again.

A stored trial is looked up by the content of its data. If that changes with every read, stored
trials are never found, and everything is trained again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, cast

import numpy as np
import torch.utils.data
from numpy.typing import NDArray

from calibration.data.dataset import Dataset

SAMPLED_ROWS = 64
_REMEDY = (
    "a sweep finds its trials by their data, which must stay the same: take random transforms out "
    "of the dataset and write training: {augmentation: crop_flip} in the spec, and seed inside "
    "the callable what it draws"
)


def check_stable(origin: str, read: Sequence[NDArray[Any]], again: object) -> None:
    """Raise ``ValueError`` if ``again`` differs from the arrays ``read`` before.

    ``again`` is a tuple of as many arrays, or a torch dataset of (input, label) pairs. Only a few
    rows, always the same, are compared: a large dataset costs no more than a small one.
    """
    if isinstance(again, torch.utils.data.Dataset):
        _check_pairs(origin, read, again)
        return
    if not isinstance(again, tuple) or len(again) != len(read):
        raise _changed(origin, "it is something else")
    for first, second in zip(read, map(np.asarray, again), strict=True):
        if first.shape != second.shape:
            raise _changed(origin, f"an array has shape {first.shape}, then {second.shape}")
        for row in _sample(len(first)):
            if not _equal(first[row], second[row]):
                raise _changed(origin, f"row {row} changes")


def check_fingerprint(origin: str, read: Dataset, again: object) -> None:
    """The same for a ``Dataset``, by its fingerprint."""
    if isinstance(again, Dataset) and again.fingerprint != read.fingerprint:
        raise _changed(origin, "its fingerprint changes")


def _check_pairs(
    origin: str, read: Sequence[NDArray[Any]], again: torch.utils.data.Dataset[Any]
) -> None:
    inputs, labels = read
    length = getattr(again, "__len__", None)
    if length is not None and length() != len(labels):
        raise _changed(origin, f"it has {len(labels)} rows, then {length()}")
    for row, (values, label) in _pairs(again, len(labels), mapped=length is not None):
        if not _equal(np.asarray(label), labels[row]):
            raise _changed(origin, f"the label of row {row} changes")
        if not _equal(np.asarray(values), inputs[row]):
            raise _changed(origin, f"the input of row {row} changes")


def _pairs(
    dataset: torch.utils.data.Dataset[Any], rows: int, *, mapped: bool
) -> Iterator[tuple[int, Any]]:
    if mapped:
        return ((row, dataset[row]) for row in _sample(rows))
    # A dataset that can be read only once is empty now, and nothing is compared.
    return enumerate(islice(cast("Iterable[Any]", dataset), min(rows, SAMPLED_ROWS)))


def _sample(rows: int) -> list[int]:
    """Evenly spaced rows, including the first and the last."""
    count = min(rows, SAMPLED_ROWS)
    return [round(place) for place in np.linspace(0, rows - 1, count).tolist()]


def _equal(one: Any, other: Any) -> bool:
    """Whether both are equal bit for bit, so that a NaN equals itself; strings by value."""
    first, second = np.asarray(one), np.asarray(other)
    if first.dtype.kind in "OUS":
        return bool(first.tolist() == second.tolist())
    return first.shape == second.shape and first.tobytes() == second.tobytes()


def _changed(origin: str, how: str) -> ValueError:
    return ValueError(f"{origin}: read twice, {how}; {_REMEDY}")
