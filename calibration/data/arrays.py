"""Arrays in memory or in an NPZ file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibration.data.columns import Column
from calibration.data.dataset import DATASETS, Dataset, DatasetOptions, Kind, Part
from calibration.data.fixed import TEST_SHARE, FixedDataset
from calibration.data.labels import class_names_of, encode_labels
from calibration.data.mapped import MappedFile, MappedRows
from calibration.data.npz import CLASS_NAMES, NpzFile, class_names_in
from calibration.data.paths import check_file
from calibration.data.protocol import Share
from calibration.data.roles import Roles, check_fold_alone, check_roles, read_roles
from calibration.memory import IN_MEMORY_BYTES, check_fits

_KEYS = (
    ("inputs", "labels", "test_inputs", "test_labels"),
    ("X", "y", "test_X", "test_y"),
    ("x_train", "y_train", "x_test", "y_test"),
)
"""Names that the arrays of an NPZ file may have."""
_ROWS = 1024
"""Rows checked at a time: a mapped array need not fit into memory."""


@DATASETS.register("arrays")
class Arrays(DatasetOptions):
    """Arrays of an NPZ file: inputs and labels (or X and y), and test_… for a test part.

    Alternatively, inputs in an NPY file and ``labels`` in another. Large uncompressed arrays
    stay on disk and are read batch by batch.

    Inputs (N, D) are a table, where NaN means missing; (N, H, W), (N, C, H, W) and
    (N, H, W, C) with 1 or 3 channels are images. Labels are integers, booleans or
    strings. An array ``class_names`` names the classes 0…K−1. Without a test part
    ``test_share`` of the rows is set aside.

    ``group``, ``time``, ``fold`` and ``weight`` name arrays with one value per row, with the same
    meaning as the columns of a ``table`` in that role; a test part has its own, ``test_…``.
    """

    path: Path
    labels: Path | None = None
    name: str | None = None
    test_share: Share = TEST_SHARE
    group: str | None = None
    time: str | None = None
    fold: str | None = None
    weight: str | None = None

    def load(self) -> Dataset:
        """Read the file. Raises ``ValueError`` naming it and the array at fault."""
        arrays, names = self._arrays()
        roles, origin = Roles(self.group, self.time, self.fold, self.weight), str(self.path)
        return dataset_of_arrays(
            self.name or self.path.stem,
            arrays,
            class_names=names,
            test_share=self.test_share,
            origin=origin,
            described=self._described(roles, arrays[1::2], origin) if roles.named else None,
        )

    def _arrays(self) -> tuple[list[NDArray[Any]], tuple[str, ...] | None]:
        if self.path.suffix.lower() != ".npy":
            if self.labels is not None:
                raise ValueError(f"{self.path}: 'labels' goes with inputs in an .npy file")
            return read_npz(self.path)
        if self.labels is None:
            raise ValueError(f"{self.path}: name the file of the labels with 'labels'")
        if Roles(self.group, self.time, self.fold, self.weight).named:
            raise ValueError(f"{self.path}: 'group', 'time', 'fold' and 'weight' need an NPZ file")
        return [read_npy(self.path), read_npy(self.labels)], None

    def _described(
        self, roles: Roles, labels: Sequence[NDArray[Any]], origin: str
    ) -> list[dict[str, Tensor]]:
        """The fields of ``Part`` from the arrays with a role, for the rows and the test rows."""
        check_roles(roles, origin, {name: "read as data" for keys in _KEYS for name in keys})
        check_fold_alone(self, origin)
        if self.fold is not None and len(labels) == 2:
            raise ValueError(f"{origin}: it has a test part; 'fold' would have to name it again")
        stored = NpzFile(self.path)
        columns = []
        for prefix, of_part in zip(("", "test_"), labels, strict=False):
            wanted = {role: f"{prefix}{name}" for role, name in roles.named.items()}
            for role, name in wanted.items():
                if name not in stored.names:
                    found = ", ".join(sorted(stored.names))
                    raise ValueError(f"{origin}: no {role} array {name!r}; found {found}")
            content = stored.arrays(wanted.values())
            for role, name in wanted.items():
                if content[name].shape not in ((len(of_part),), (len(of_part), 1)):
                    raise ValueError(
                        f"{origin}: {role} array {name!r} must have one value per row "
                        f"({len(of_part)}), found the shape {content[name].shape}"
                    )
            columns.append(
                {role: pd.Series(content[name].ravel(), name=name) for role, name in wanted.items()}
            )
        return read_roles(columns, [origin, f"{origin}, test part"][: len(columns)])


def read_npz(path: Path) -> tuple[list[NDArray[Any]], tuple[str, ...] | None]:
    """Return inputs, labels (also of a test part) and class names; nothing is unpickled.

    Raises ``ValueError`` if the file is absent, damaged, or lacks the arrays.
    """
    stored = NpzFile(path)
    for keys in _KEYS:
        if all(key in stored.names for key in keys[:2]):
            test = [key for key in keys[2:] if key in stored.names]
            if len(test) == 1:
                raise ValueError(f"{path}: {test[0]!r} needs both of {keys[2]!r} and {keys[3]!r}")
            wanted = [*keys[:2], *test]
            named = [CLASS_NAMES] if CLASS_NAMES in stored.names else []
            content = stored.arrays([*wanted, *named])
            names = class_names_in(content[CLASS_NAMES], path) if named else None
            return [content[key] for key in wanted], names
    raise ValueError(
        f"{path}: no inputs and labels; found {', '.join(sorted(stored.names)) or 'nothing'}, "
        f"expected {' or '.join(f'{k[0]!r} with {k[1]!r}' for k in _KEYS)}"
    )


def read_npy(path: Path) -> NDArray[Any]:
    """The array of an NPY file, memory-mapped; nothing is unpickled.

    Raises ``ValueError`` if the file is absent, damaged or holds objects.
    """
    check_file(path)
    try:
        found: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # the header is parsed as Python: any error is possible
        raise ValueError(f"{path}: not a readable NPY file of plain numbers: {error}") from None
    return found


def dataset_of_arrays(
    name: str,
    arrays: Sequence[Any],
    *,
    origin: str,
    class_names: tuple[str, ...] | None = None,
    test_share: Share = TEST_SHARE,
    described: Sequence[dict[str, Tensor]] | None = None,
) -> Dataset:
    """Make a dataset of (inputs, labels) or (inputs, labels, test inputs, test labels).

    ``described`` has further fields of ``Part`` for the rows, and for the test rows.
    Raises ``ValueError`` naming ``origin`` for invalid shapes, types or values.
    """
    if len(arrays) not in (2, 4):
        raise ValueError(f"{origin}: 2 or 4 arrays are expected, found {len(arrays)}")
    values = [array if isinstance(array, np.memmap) else np.asarray(array) for array in arrays]
    labels = [_labels(array, f"{origin}: labels") for array in values[1::2]]
    if class_names is None:
        class_names = class_names_of(labels[0], f"{origin}: labels")
        encoded = [encode_labels(series, class_names, f"{origin}: labels") for series in labels]
    else:
        encoded = [_numbered(series, f"{origin}: labels") for series in labels]
    inputs = [as_inputs(array, f"{origin}: inputs") for array in values[::2]]
    fields = described or [{} for _ in inputs]
    parts = [
        Part(rows, of_rows, **more)
        for rows, of_rows, more in zip(inputs, encoded, fields, strict=True)
    ]
    kind: Kind = "image"
    columns: tuple[Column, ...] = ()
    if inputs[0].ndim == 2:
        kind = "table"
        columns = tuple(Column(f"x{place}", "numeric") for place in range(inputs[0].shape[1]))
    return FixedDataset(
        name,
        kind,
        parts[0],
        class_names,
        test=parts[1] if len(parts) == 2 else None,
        test_share=test_share,
        columns=columns,
    )


def as_inputs(array: NDArray[Any], origin: str) -> Tensor:
    """Return raw inputs: a table as float64, images as (N, C, H, W), uint8 or float32.

    Raises ``ValueError`` naming ``origin`` for other shapes and types, infinite
    values, and images with missing values.
    """
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{origin} must be numbers, found the type {array.dtype}")
    if array.ndim not in (2, 3, 4) or 0 in array.shape:
        raise ValueError(
            f"{origin} must have the shape (N, D) of a table or (N, H, W) or (N, C, H, W) "
            f"of images, found {array.shape}"
        )
    if array.dtype.kind == "f" and not all(
        _finite(array[at : at + _ROWS]) for at in range(0, len(array), _ROWS)
    ):
        raise ValueError(f"{origin} must be finite (only a table may have NaN for missing)")
    file = MappedFile.of(array) if array.nbytes > IN_MEMORY_BYTES else None
    if array.ndim == 2:
        if file is not None:
            return MappedRows(file, torch.float64)
        return torch.from_numpy(array.astype(np.float64))
    channels = (1,) if array.ndim == 3 else ()
    dtype = torch.uint8 if array.dtype == np.uint8 else torch.float32
    if file is not None and (array.ndim == 3 or array.shape[1] in (1, 3)):
        return MappedRows(file, dtype, shape=(*channels, *array.shape[1:]))
    if isinstance(array, np.memmap):  # not read yet, and its axis order rules out mapping
        check_fits(array.nbytes, f"{origin} of the shape {array.shape} take")
    if array.ndim == 3:
        array = array[:, None]
    elif array.shape[1] not in (1, 3) and array.shape[3] in (1, 3):
        array = array.transpose(0, 3, 1, 2)
    kept = np.uint8 if array.dtype == np.uint8 else np.float32
    return torch.from_numpy(np.array(array, dtype=kept, order="C"))


def _finite(rows: NDArray[Any]) -> bool:
    return not (np.isinf(rows).any() or (rows.ndim > 2 and np.isnan(rows).any()))


def _labels(array: NDArray[Any], origin: str) -> pd.Series[Any]:
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"{origin} must have one number or text per row, found {array.shape}")
    return pd.Series(array.astype(str) if array.dtype.kind == "S" else array)


def _numbered(labels: pd.Series[Any], origin: str) -> Tensor:
    if labels.dtype.kind not in "iu":
        raise ValueError(f"{origin} must be integers where class_names are given")
    return torch.tensor(labels.to_numpy(np.int64))
