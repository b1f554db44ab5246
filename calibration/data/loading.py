"""From a name in a spec to a dataset."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable
from typing import Any, cast

import numpy as np
import torch.utils.data
from numpy.typing import NDArray

from calibration.data.arrays import dataset_of_arrays
from calibration.data.dataset import DATASETS, Dataset, DatasetOptions
from calibration.data.fixed import FixedDataset, described
from calibration.data.stability import check_fingerprint, check_stable

QUICK_SECONDS = 1.0


def load_dataset(name: str, options: dict[str, Any]) -> Dataset:
    """Load a registered dataset, or one made by a callable ``package.module:factory``.

    The callable takes the options as keyword arguments and returns a ``Dataset``, a
    tuple of arrays (inputs, labels) or (inputs, labels, test inputs, test labels), or a
    ``torch.utils.data.Dataset`` of (input, label) pairs, the same at every call. Its
    ``classes``, if any, name the labels; its ``train_transform``, if any, is applied to
    training rows only (one at a time, whenever a row is used). Raises ``ValueError`` saying
    what is wrong with the name, the options or the returned value.
    """
    entry: object = DATASETS[name]
    if isinstance(entry, type) and issubclass(entry, DatasetOptions):
        return entry.checked(options, f"dataset {name!r}").load()
    if not callable(entry):
        raise ValueError(f"dataset {name!r} is a {type(entry).__name__}, not a callable")
    began = time.monotonic()
    made = _call(name, entry, options)
    # Called again unless that takes long: random draws may change, not only the files it reads.
    quick = time.monotonic() - began < QUICK_SECONDS
    return _as_dataset(name, made, _call(name, entry, options) if quick else made)


def _call(name: str, factory: Callable[..., object], options: dict[str, Any]) -> object:
    # Bound first, so that a TypeError from inside the user's code keeps its traceback.
    try:
        call = inspect.signature(factory).bind(**options)
    except TypeError as error:
        raise ValueError(
            f"dataset {name!r}: the options do not fit the callable: {error}"
        ) from None
    return factory(*call.args, **call.kwargs)


def _as_dataset(name: str, made: object, again: object) -> Dataset:
    origin = f"dataset {name!r}"
    if isinstance(made, Dataset):
        check_fingerprint(origin, made, again)
        return made
    if isinstance(made, tuple | torch.utils.data.Dataset):
        given = made if isinstance(made, tuple) else _stacked(made, origin)
        arrays = [a if isinstance(a, np.memmap) else np.asarray(a) for a in given]
        dataset = dataset_of_arrays(
            name, arrays, origin=origin, class_names=_class_names(made, arrays[1])
        )
        check_stable(origin, arrays, again)
        transform = getattr(made, "train_transform", None)
        if transform is not None and isinstance(dataset, FixedDataset):
            dataset.train_transform = transform
            described(transform)  # raises if it cannot be identified
        return dataset
    raise ValueError(
        f"{origin}: the callable returned a {type(made).__name__}; return a Dataset, a tuple of "
        "2 or 4 arrays, or a torch.utils.data.Dataset of (input, label) pairs"
    )


def _class_names(made: object, labels: NDArray[Any]) -> tuple[str, ...] | None:
    """The ``classes`` of a dataset, as in torchvision, if its labels number them."""
    while isinstance(made, torch.utils.data.Subset):
        made = made.dataset
    names = getattr(made, "classes", None)
    if not isinstance(names, list | tuple) or len(set(map(str, names))) < max(2, len(names)):
        return None
    numbered = labels.dtype.kind in "iu" and labels.size and labels.min() >= 0
    return tuple(map(str, names)) if numbered and labels.max() < len(names) else None


def _stacked(pairs: torch.utils.data.Dataset[Any], origin: str) -> tuple[Any, Any]:
    # A map-style dataset need not end its iteration itself.
    length = getattr(pairs, "__len__", None)
    items = (pairs[i] for i in range(length())) if length else cast("Iterable[Any]", pairs)
    inputs, labels = [], []
    for row, item in enumerate(items):
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise ValueError(f"{origin}: row {row} is not an (input, label) pair")
        inputs.append(np.asarray(item[0]))
        labels.append(np.asarray(item[1]))
    shapes = sorted({array.shape for array in inputs})
    if len(shapes) != 1:
        raise ValueError(f"{origin}: inputs must have one shape, found {shapes[:3] or 'no rows'}")
    return np.stack(inputs), np.stack(labels)
