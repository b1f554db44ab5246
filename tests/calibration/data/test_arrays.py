from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from calibration.data import PROTOCOLS, Dataset, load_dataset

RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(60, 5))
LABELS = np.arange(60) % 3


def load(folder: Path, **arrays: Any) -> Dataset:
    np.savez(folder / "mine.npz", **arrays)
    return load_dataset("arrays", {"path": str(folder / "mine.npz")})


@pytest.mark.parametrize(
    "keys",
    [
        ("inputs", "labels", "test_inputs", "test_labels"),
        ("X", "y", "test_X", "test_y"),
        ("x_train", "y_train", "x_test", "y_test"),
    ],
)
def test_a_table_with_its_test_part(tmp_path: Path, keys: tuple[str, ...]) -> None:
    arrays = (TABLE, LABELS, TABLE[:7] + 1, LABELS[:7])
    dataset = load(tmp_path, **dict(zip(keys, arrays, strict=True)))
    assert (dataset.name, dataset.kind, dataset.class_names) == ("mine", "table", ("0", "1", "2"))
    np.testing.assert_array_equal(dataset.test(0).inputs, TABLE[:7] + 1)
    splits = dataset.split(PROTOCOLS["honest"], 0, held_out=False)
    rows = torch.cat([splits.train.inputs, splits.validation.inputs]).numpy()
    np.testing.assert_array_equal(np.sort(rows, axis=0), np.sort(TABLE, axis=0))


def test_without_a_test_part_a_quarter_is_set_aside(tmp_path: Path) -> None:
    assert len(load(tmp_path, X=TABLE, y=LABELS).test(0).labels) == 15


@pytest.mark.parametrize(
    ("shape", "dtype", "expected_shape", "expected_dtype"),
    [
        ((60, 3, 8, 6), np.uint8, (3, 8, 6), torch.uint8),
        ((60, 8, 6, 3), np.uint8, (3, 8, 6), torch.uint8),
        ((60, 8, 6), np.float64, (1, 8, 6), torch.float32),
        ((60, 2, 8, 6), np.int16, (2, 8, 6), torch.float32),
        ((60, 5), np.int32, (5,), torch.float64),
        ((60, 5), bool, (5,), torch.float64),
    ],
)
def test_shapes_and_types(
    tmp_path: Path,
    shape: tuple[int, ...],
    dtype: type,
    expected_shape: tuple[int, ...],
    expected_dtype: torch.dtype,
) -> None:
    values = RNG.integers(0, 200, size=shape).astype(dtype)
    dataset = load(tmp_path, X=values, y=LABELS, test_X=values[:4], test_y=LABELS[:4])
    inputs = dataset.test(0).inputs
    assert inputs.shape == (4, *expected_shape)
    assert inputs.dtype == expected_dtype
    assert dataset.kind == ("table" if len(shape) == 2 else "image")
    last_first = values[:4].transpose(0, 3, 1, 2) if shape[-1] == 3 else values[:4]
    np.testing.assert_array_equal(inputs.reshape(4, -1), last_first.reshape(4, -1))


def test_labels_are_named(tmp_path: Path) -> None:
    texts = np.array(["b", "a", "c"])[LABELS]
    assert load(tmp_path, X=TABLE, y=texts).class_names == ("a", "b", "c")
    assert load(tmp_path, X=TABLE, y=texts.astype("S")).class_names == ("a", "b", "c")
    assert load(tmp_path, X=TABLE, y=LABELS[:, None] > 0).class_names == ("False", "True")
    names = np.array(["cat", "dog", "emu", "never seen"])
    assert load(tmp_path, X=TABLE, y=LABELS, class_names=names).class_names == tuple(names)


def test_nan_in_a_table_is_a_missing_value(tmp_path: Path) -> None:
    values = TABLE.copy()
    values[::3, 2] = np.nan
    splits = load(tmp_path, X=values, y=LABELS).split(PROTOCOLS["honest"], 0, held_out=False)
    inputs = splits.transform(splits.train.inputs)
    assert inputs.shape[1] == 6
    assert inputs.isfinite().all()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": TABLE}, "no inputs and labels; found a, expected 'inputs' with 'labels' or"),
        ({"X": TABLE, "y": LABELS[:5]}, "60 inputs but 5 labels"),
        ({"X": TABLE, "y": LABELS, "test_X": TABLE}, "'test_X' needs both"),
        ({"X": TABLE, "y": LABELS, "test_X": TABLE[:, :2], "test_y": LABELS}, r"\(5,\) .*\(2,\)"),
        ({"X": TABLE, "y": LABELS, "test_X": TABLE, "test_y": LABELS + 1}, "class '3' does not"),
        ({"X": TABLE, "y": LABELS * 0}, "a classifier needs two classes, found only '0'"),
        ({"X": TABLE, "y": np.eye(60)}, r"one number or text per row, found \(60, 60\)"),
        ({"X": TABLE, "y": TABLE[:, 0]}, "a class label cannot be the fraction"),
        ({"X": TABLE[:, 0], "y": LABELS}, r"must have the shape \(N, D\) .* found \(60,\)"),
        ({"X": TABLE.astype(str), "y": LABELS}, "inputs must be numbers, found the type"),
        ({"X": np.full((60, 2), np.inf), "y": LABELS}, "inputs must be finite"),
        ({"X": np.full((60, 4, 4), np.nan), "y": LABELS}, "inputs must be finite"),
        ({"X": TABLE, "y": LABELS, "class_names": ["p", "q"]}, "must lie in 0…1, found 0…2"),
    ],
)
def test_unfit_arrays_are_explained(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(tmp_path, **arrays)


class Bomb:
    """Would create a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    bombs = np.array([Bomb(tmp_path / "exploded")] * 60, dtype=object)
    with pytest.raises(ValueError, match=r"mine\.npz: not a readable NPZ file of plain arrays"):
        load(tmp_path, X=TABLE, y=bombs)
    assert not (tmp_path / "exploded").exists()


def test_damaged_and_absent_files_are_named(tmp_path: Path) -> None:
    load(tmp_path, X=TABLE, y=LABELS)
    whole = (tmp_path / "mine.npz").read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"nonsense"):
        (tmp_path / "bad.npz").write_bytes(content)
        with pytest.raises(ValueError, match=r"bad\.npz: not a readable NPZ"):
            load_dataset("arrays", {"path": str(tmp_path / "bad.npz")})
    np.save(tmp_path / "single.npz.npy", TABLE)
    (tmp_path / "single.npz.npy").rename(tmp_path / "single.npz")
    with pytest.raises(ValueError, match=r"single\.npz: not a readable NPZ"):
        load_dataset("arrays", {"path": str(tmp_path / "single.npz")})
    with pytest.raises(ValueError, match=r"none\.npz: no such file"):
        load_dataset("arrays", {"path": str(tmp_path / "none.npz")})
