from __future__ import annotations

import gzip
import hashlib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from calibration.data import Dataset, checksums, idx, load_dataset
from calibration.data.files import DataFileError
from calibration.data.idx import parse_idx

NAMES = ("mnist", "fashion_mnist")


@pytest.fixture(autouse=True)
def no_debian_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The package may be installed here; point to a folder of the test's instead."""
    place = tmp_path / "debian"
    monkeypatch.setattr(idx, "DEBIAN_FASHION_MNIST", place)
    monkeypatch.delenv("CALSWEEP_DATA", raising=False)
    return place


def load(name: str, folder: Path | None) -> Dataset:
    with pytest.warns(UserWarning, match=f"is not the official .* of {name}"):
        return load_dataset(name, {} if folder is None else {"data_dir": str(folder)})


def assert_holds(dataset: Dataset, arrays: Any) -> None:
    images, labels, test_images, test_labels = arrays
    pool = dataset._pool  # type: ignore[attr-defined]
    test = dataset.test(0)
    for part, expected, classes in ((pool, images, labels), (test, test_images, test_labels)):
        assert part.inputs.dtype == torch.uint8
        np.testing.assert_array_equal(part.inputs, expected[:, None])
        np.testing.assert_array_equal(part.labels, classes)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("compressed", [True, False])
def test_files_are_read_back_exactly(
    tmp_path: Path, write_idx: Callable[..., Any], name: str, compressed: bool
) -> None:
    arrays = write_idx(tmp_path, compressed=compressed)
    dataset = load(name, tmp_path)
    assert (dataset.kind, dataset.classes, dataset.name) == ("image", 10, name)
    assert_holds(dataset, arrays)


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("mnist", "mnist"),
        ("mnist", "MNIST/raw"),
        ("fashion_mnist", "fashion_mnist"),
        ("fashion_mnist", "fashion-mnist"),
        ("fashion_mnist", "FashionMNIST/raw"),
    ],
)
def test_named_folders_come_before_the_data_dir(
    tmp_path: Path, write_idx: Callable[..., Any], name: str, folder: str
) -> None:
    write_idx(tmp_path, seed=1)
    arrays = write_idx(tmp_path / folder, seed=2)
    assert_holds(load(name, tmp_path), arrays)


def test_debians_package_is_found(
    no_debian_package: Path, write_idx: Callable[..., Any], tmp_path: Path
) -> None:
    arrays = write_idx(no_debian_package, compressed=True)
    assert_holds(load("fashion_mnist", tmp_path / "nowhere"), arrays)
    with pytest.raises(DataFileError, match="mnist: not found"):
        load_dataset("mnist", {"data_dir": str(tmp_path / "nowhere")})


def test_the_environment_names_the_data_dir(
    tmp_path: Path, write_idx: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = write_idx(tmp_path / "data", seed=1), write_idx(tmp_path / "elsewhere", seed=2)
    monkeypatch.chdir(tmp_path)
    assert_holds(load("mnist", None), here)
    monkeypatch.setenv("CALSWEEP_DATA", str(tmp_path / "elsewhere"))
    assert_holds(load("mnist", None), there)
    assert_holds(load("mnist", tmp_path / "data"), here)


def test_absent_files_are_asked_for(tmp_path: Path, no_debian_package: Path) -> None:
    with pytest.raises(DataFileError) as caught:
        load_dataset("fashion_mnist", {"data_dir": str(tmp_path)})
    message = str(caught.value)
    expected = (str(tmp_path), str(no_debian_package), "t10k-labels-idx1-ubyte", "data_dir")
    assert all(part in message for part in (*expected, "dataset-fashion-mnist", "$CALSWEEP_DATA"))


def test_one_lacking_file_is_named(tmp_path: Path, write_idx: Callable[..., Any]) -> None:
    write_idx(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with (
        pytest.warns(UserWarning, match="not the official"),
        pytest.raises(DataFileError, match="lacks t10k-labels-idx1-ubyte"),
    ):
        load_dataset("mnist", {"data_dir": str(tmp_path)})


@pytest.mark.parametrize("compressed", [True, False])
def test_a_truncated_file_is_named(
    tmp_path: Path, write_idx: Callable[..., Any], compressed: bool
) -> None:
    write_idx(tmp_path, compressed=compressed)
    path = tmp_path / ("train-images-idx3-ubyte" + (".gz" if compressed else ""))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataFileError, match=r"train-images-idx3-ubyte.*fetch it again"):
        load_dataset("mnist", {"data_dir": str(tmp_path)})


def test_images_and_labels_must_match(tmp_path: Path, write_idx: Callable[..., Any]) -> None:
    write_idx(tmp_path)
    labels = (tmp_path / "t10k-labels-idx1-ubyte").read_bytes()
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(labels)
    with (
        pytest.warns(UserWarning, match="not the official"),
        pytest.raises(DataFileError, match=r"shape \(40, 28, 28\) and .* of shape \(8,\)"),
    ):
        load_dataset("mnist", {"data_dir": str(tmp_path)})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an idx file"),
        (b"\0\0\x0d\x01\0\0\0\x01\0\0\0\0", "not an idx file of unsigned bytes"),
        (b"\0\0\x08\x03\0\0", "truncated within its header"),
        (b"\0\0\x08\x01\0\0\0\x03ab", "10 bytes, but its header announces 11"),
        (b"\0\0\x08\x01\0\0\0\x01ab", "10 bytes, but its header announces 9"),
    ],
)
def test_malformed_idx_is_explained(content: bytes, message: str) -> None:
    with pytest.raises(DataFileError, match=message):
        parse_idx(content, "file")


def test_official_files_pass_silently_and_foreign_ones_are_refused(
    tmp_path: Path, write_idx: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pretend the made-up files were the official ones of MNIST."""
    write_idx(tmp_path, compressed=True)
    sums = {
        path.stem: hashlib.md5(gzip.decompress(path.read_bytes())).hexdigest()
        for path in tmp_path.glob("*.gz")
    }
    monkeypatch.setitem(checksums.MD5, "mnist", sums)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_dataset("mnist", {"data_dir": str(tmp_path)})
    with pytest.raises(DataFileError, match=r"this is train-images.* of mnist, not fashion_mn"):
        load_dataset("fashion_mnist", {"data_dir": str(tmp_path)})
