"""What every registered dataset must do. A new one needs a line in ``options``."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from calibration.data import DATASETS, PROTOCOLS, Dataset, Part, load_dataset

NO_OPTIONS: tuple[str, ...] = (
    *("blobs-1.3", "blobs-1.7", "spiral-2.5", "spiral-3.5", "bac"),
    *("digits", "breast_cancer", "wine", "iris"),
    *("diamonds", "happiness", "catholic_schools", "affairs", "mortgages"),
)


def images(place: Path, *, folder: bool) -> dict[str, Any]:
    """Small PNG images of three classes, in folders or in a table."""
    columns: dict[str, list[Any]] = {"image": [], "label": []}
    for number in range(60):
        values = np.random.default_rng(number).integers(0, 256, (6, 6, 3), dtype=np.uint8)
        path = place / "images" / "abc"[number % 3] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(values).save(path)
        columns["image"].append(path.read_bytes())
        columns["label"].append(path.parent.name)
    pd.DataFrame(columns).to_parquet(place / "images.parquet")
    return {"path": place / ("images" if folder else "images.parquet")}


@pytest.fixture
def load(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write_idx: Callable[..., Any],
    write_cifar: Callable[..., Any],
    write_tiny_imagenet: Callable[..., Any],
) -> Callable[[str], Dataset]:
    monkeypatch.setenv("CALSWEEP_CACHE", str(tmp_path / "cache"))

    def options(name: str) -> dict[str, Any]:
        if name in NO_OPTIONS:
            return {}
        if name == "table":
            frame = pd.DataFrame({"a": np.arange(50) % 7, "b": ["x", "y"] * 25, "t": [0, 1] * 25})
            frame.to_csv(tmp_path / "t.csv", index=False)
            return {"path": tmp_path / "t.csv", "target": "t"}
        if name == "arrays":
            inputs = np.random.default_rng(0).normal(size=(60, 3))
            np.savez(tmp_path / "a.npz", X=inputs, y=np.arange(60) % 3)
            return {"path": tmp_path / "a.npz"}
        if name in ("image_folder", "image_table"):
            return images(tmp_path, folder=name == "image_folder")
        write = {
            "mnist": lambda: write_idx(tmp_path / "mnist"),
            "fashion_mnist": lambda: write_idx(tmp_path / "fashion_mnist"),
            "cifar10": lambda: write_cifar(tmp_path, "binary"),
            "cifar100": lambda: write_cifar(tmp_path, "python", fine=True),
            "tiny_imagenet": lambda: write_tiny_imagenet(tmp_path),
        }
        write[name]()
        return {"data_dir": tmp_path}

    def load(name: str) -> Dataset:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return load_dataset(name, options(name))

    return load


def parts_of(dataset: Dataset, seed: int) -> list[Part]:
    splits = dataset.split(PROTOCOLS["honest"], seed, held_out=True)
    assert splits.meta_validation is not None
    return [splits.train, splits.validation, splits.meta_validation, dataset.test(seed)]


def same(mine: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Equal, gaps included."""
    return torch.equal(mine.nan_to_num(-1e9), theirs.nan_to_num(-1e9))


@pytest.mark.parametrize("name", list(DATASETS))
def test_contract(name: str, load: Callable[[str], Dataset]) -> None:
    dataset = load(name)
    assert dataset.kind in ("points", "table", "image")
    assert dataset.classes == len(dataset.class_names) >= 2
    assert len(set(dataset.class_names)) == dataset.classes
    assert len(bytes.fromhex(dataset.fingerprint)) == 32
    splits = dataset.split(PROTOCOLS["honest"], 0, held_out=True)
    assert not hasattr(splits, "test")
    for part in parts_of(dataset, 0):
        assert part.labels.dtype == torch.int64
        assert part.labels.min() >= 0
        assert part.labels.max() < dataset.classes
        inputs = splits.transform(part.inputs)
        assert inputs.dtype == torch.float32
        assert inputs.isfinite().all()
        assert inputs.ndim == (4 if dataset.kind == "image" else 2)
        assert inputs.shape[1:] == splits.transform(part.inputs[:1]).shape[1:]
        if dataset.kind == "points":
            assert part.inputs.shape[1] == 2
        exact = dataset.posterior(part.inputs)
        assert (exact is not None) == dataset.independent_draws
    train = splits.transform(splits.train.inputs)
    assert train.mean().abs() < 0.5


@pytest.mark.parametrize("name", list(DATASETS))
def test_loading_again_and_pickling_change_nothing(
    name: str, load: Callable[[str], Dataset]
) -> None:
    dataset = load(name)
    copy = pickle.loads(pickle.dumps(dataset))
    splits = copy.split(PROTOCOLS["honest"], 3, held_out=True)
    transform = pickle.loads(pickle.dumps(splits.transform))
    assert copy.fingerprint == dataset.fingerprint
    for mine, theirs in zip(parts_of(dataset, 3), parts_of(copy, 3), strict=True):
        assert mine.labels.equal(theirs.labels)
        assert transform(mine.inputs).equal(splits.transform(theirs.inputs))


@pytest.mark.parametrize("name", list(DATASETS))
def test_seeds_vary_the_split_and_fixed_test_data_stay(
    name: str, load: Callable[[str], Dataset]
) -> None:
    dataset = load(name)
    first, second = parts_of(dataset, 1), parts_of(dataset, 2)
    assert not torch.equal(first[0].inputs.double(), second[0].inputs.double())
    same_test = same(first[3].inputs, second[3].inputs) and same(first[3].labels, second[3].labels)
    assert same_test != dataset.independent_draws


@pytest.mark.parametrize("name", list(DATASETS))
def test_nested_sets_rows_apart_that_no_other_seed_trains_on(
    name: str, load: Callable[[str], Dataset]
) -> None:
    dataset = load(name)
    first, second = (dataset.split(PROTOCOLS["nested"], seed, held_out=True) for seed in (0, 1))
    assert first.apart is not None
    assert second.apart is not None
    kept = same(first.apart.inputs, second.apart.inputs)
    assert kept != dataset.independent_draws
    halves = len(first.apart.labels), len(first.validation.labels)
    assert abs(halves[0] - halves[1]) <= 1


def test_digits_are_the_images_of_sklearn() -> None:
    images, labels = load_digits(return_X_y=True)
    known = {row.astype(np.uint8).tobytes(): y for row, y in zip(images, labels, strict=True)}
    total = 0
    for part in parts_of(load_dataset("digits", {}), 0):
        assert part.inputs.dtype == torch.uint8
        assert part.inputs.shape[1:] == (1, 8, 8)
        for image, label in zip(part.inputs, part.labels, strict=True):
            assert known[(image // 15).numpy().tobytes()] == int(label)
        total += len(part.labels)
    assert total == 1797


def test_bundled_tables_name_their_columns_and_classes() -> None:
    iris = load_dataset("iris", {})
    assert iris.class_names == ("setosa", "versicolor", "virginica")
    assert iris.columns[0].name == "sepal length (cm)"
    frame = pd.DataFrame([[5.1, 3.5, 1.4, 0.2]], columns=[c.name for c in iris.columns])
    assert iris.encode(frame[frame.columns[::-1]]).tolist() == [[5.1, 3.5, 1.4, 0.2]]
    assert load_dataset("breast_cancer", {}).class_names == ("malignant", "benign")
