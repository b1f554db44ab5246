from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from calibration.data import Dataset, load_dataset
from calibration.data.files import DataFileError

FORMS = [(layout, packed) for layout in ("python", "binary") for packed in (True, False)]


def load(name: str, folder: Path) -> Dataset:
    with pytest.warns(UserWarning, match=f"is not the official .* of {name}"):
        return load_dataset(name, {"data_dir": str(folder)})


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
@pytest.mark.parametrize(("layout", "packed"), FORMS)
def test_files_are_read_back_exactly(
    tmp_path: Path, write_cifar: Callable[..., Any], name: str, layout: str, packed: bool
) -> None:
    fine = name == "cifar100"
    images, labels, test_images, test_labels = write_cifar(
        tmp_path, layout, fine=fine, packed=packed
    )
    dataset = load(name, tmp_path)
    assert dataset.kind == "image"
    assert dataset.class_names == tuple(f"class_{i}" for i in range(100 if fine else 10))
    pool, test = dataset._pool, dataset.test(0)  # type: ignore[attr-defined]
    for part, expected, classes in ((pool, images, labels), (test, test_images, test_labels)):
        assert part.inputs.dtype == torch.uint8
        np.testing.assert_array_equal(part.inputs, expected)
        np.testing.assert_array_equal(part.labels, classes)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_every_form_has_the_same_fingerprint(
    tmp_path: Path, write_cifar: Callable[..., Any], name: str
) -> None:
    found = set()
    for number, (layout, packed) in enumerate(FORMS):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_cifar(folder, layout, fine=name == "cifar100", packed=packed)
        found.add(load(name, folder).fingerprint)
    assert len(found) == 1


def test_data_dir_may_be_the_folder_itself(tmp_path: Path, write_cifar: Callable[..., Any]) -> None:
    write_cifar(tmp_path, "binary")
    inside = load("cifar10", tmp_path / "cifar-10-batches-bin")
    assert inside.fingerprint == load("cifar10", tmp_path).fingerprint


def test_absent_files_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(DataFileError) as caught:
        load_dataset("cifar100", {"data_dir": str(tmp_path)})
    expected = (str(tmp_path), "cifar-100-python.tar.gz", "cifar-100-binary/", "cs.toronto.edu")
    assert all(part in str(caught.value) for part in expected)


def test_a_lacking_batch_is_named(tmp_path: Path, write_cifar: Callable[..., Any]) -> None:
    write_cifar(tmp_path, "python")
    (tmp_path / "cifar-10-batches-py" / "data_batch_4").unlink()
    with pytest.raises(DataFileError, match="cifar-10-batches-py lacks data_batch_4"):
        load_dataset("cifar10", {"data_dir": str(tmp_path)})


@pytest.mark.parametrize(
    ("layout", "file"), [("python", "data_batch_2"), ("binary", "data_batch_2.bin")]
)
def test_a_truncated_batch_is_named(
    tmp_path: Path, write_cifar: Callable[..., Any], layout: str, file: str
) -> None:
    write_cifar(tmp_path, layout)
    path = next(tmp_path.glob(f"*/{file}"))
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DataFileError, match=f"{file}: .*fetch it again"):
        load_dataset("cifar10", {"data_dir": str(tmp_path)})


@pytest.mark.parametrize("layout", ["python", "binary"])
def test_a_truncated_archive_is_named(
    tmp_path: Path, write_cifar: Callable[..., Any], layout: str
) -> None:
    write_cifar(tmp_path, layout, packed=True)
    path = next(tmp_path.glob("*.tar.gz"))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DataFileError, match=r"\.tar\.gz: truncated or damaged"):
        load_dataset("cifar10", {"data_dir": str(tmp_path)})


class Bomb:
    """Would create a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_nothing_executable_is_unpickled(tmp_path: Path, write_cifar: Callable[..., Any]) -> None:
    write_cifar(tmp_path, "python")
    batch = tmp_path / "cifar-10-batches-py" / "data_batch_1"
    bomb = pickle.dumps({"data": Bomb(tmp_path / "exploded"), "labels": [0]})
    batch.write_bytes(bomb)
    with pytest.raises(DataFileError, match=r"data_batch_1: .*it asks for pathlib"):
        load_dataset("cifar10", {"data_dir": str(tmp_path)})
    assert not (tmp_path / "exploded").exists()
    pickle.loads(bomb)
    assert (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"labels": [0]}, "data_batch_1: no 'data' inside"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [0]}, "1 labels need 1×3072 bytes"),
        ({"data": np.zeros((1, 3072)), "labels": [0]}, "float64"),
        ([1, 2], "no 'data' inside"),
    ],
)
def test_an_unfit_batch_is_explained(
    tmp_path: Path, write_cifar: Callable[..., Any], content: object, message: str
) -> None:
    write_cifar(tmp_path, "python")
    batch = tmp_path / "cifar-10-batches-py" / "data_batch_1"
    batch.write_bytes(pickle.dumps(content))
    with pytest.raises(DataFileError, match=message):
        load_dataset("cifar10", {"data_dir": str(tmp_path)})


def test_batches_saved_anew_by_python_3_are_read(
    tmp_path: Path, write_cifar: Callable[..., Any]
) -> None:
    write_cifar(tmp_path, "python")
    before = load("cifar10", tmp_path).fingerprint
    for path in tmp_path.glob("*/*"):
        old = pickle.loads(path.read_bytes(), encoding="latin1")
        path.write_bytes(pickle.dumps({key.encode(): value for key, value in old.items()}))
    assert load("cifar10", tmp_path).fingerprint == before
