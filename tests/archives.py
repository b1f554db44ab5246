"""Builders of tiny archives in the official layouts of the public datasets."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

Arrays = tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64]]


def random_images(
    shape: tuple[int, ...], classes: int, rows: int = 40, test: int = 8, seed: int = 0
) -> Arrays:
    rng = np.random.default_rng(seed)
    return (
        rng.integers(256, size=(rows, *shape), dtype=np.uint8),
        np.arange(rows) % classes,
        rng.integers(256, size=(test, *shape), dtype=np.uint8),
        np.arange(test) % classes,
    )


def idx_bytes(array: NDArray[Any]) -> bytes:
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return header + array.astype(np.uint8).tobytes()


@pytest.fixture
def write_idx() -> Callable[..., Arrays]:
    """Write the four idx files into a folder and return what they hold."""

    def write(folder: Path, *, compressed: bool = False, seed: int = 0) -> Arrays:
        folder.mkdir(parents=True, exist_ok=True)
        arrays = random_images((28, 28), 3, seed=seed)
        files = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
        for file, array in zip(files, arrays, strict=True):
            content = idx_bytes(array)
            if compressed:
                (folder / f"{file}-ubyte.gz").write_bytes(gzip.compress(content))
            else:
                (folder / f"{file}-ubyte").write_bytes(content)
        return arrays

    return write


class Python2Pickler(pickle._Pickler):
    """Writes texts and bytes as Python 2 did, since the official batches are that old."""

    dispatch: ClassVar[dict[type, Any]] = dict(pickle._Pickler.dispatch)

    def save_string(self, text: str | bytes) -> None:
        raw = text.encode() if isinstance(text, str) else text
        self.write(pickle.BINSTRING + struct.pack("<i", len(raw)) + raw)
        self.memoize(text)

    dispatch[str] = save_string
    dispatch[bytes] = save_string


def python2_pickle(content: object) -> bytes:
    buffer = io.BytesIO()
    Python2Pickler(buffer, protocol=2).dump(content)
    return buffer.getvalue().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")


def cifar_files(layout: str, arrays: Arrays, names: list[str], fine: bool) -> dict[str, bytes]:
    images, labels, test_images, test_labels = arrays
    parts = {"train": (images, labels), "test": (test_images, test_labels)}
    if not fine:
        pairs = zip(np.split(images, 5), np.split(labels, 5), strict=True)
        parts = {f"data_batch_{i}": pair for i, pair in enumerate(pairs, 1)}
        parts["test_batch"] = (test_images, test_labels)
    if layout == "binary":
        files = {
            f"{name}.bin": np.hstack(
                [*([np.full((len(y), 1), 7)] if fine else []), y[:, None], x.reshape(len(x), -1)]
            )
            .astype(np.uint8)
            .tobytes()
            for name, (x, y) in parts.items()
        }
        listing = "fine_label_names.txt" if fine else "batches.meta.txt"
        files[listing] = ("\n".join(names) + "\n\n").encode()
        return files
    key = "fine_labels" if fine else "labels"
    files = {
        name: python2_pickle({"data": x.reshape(len(x), -1), key: y.tolist()})
        for name, (x, y) in parts.items()
    }
    meta = {"fine_label_names" if fine else "label_names": names}
    files["meta" if fine else "batches.meta"] = python2_pickle(meta)
    return files


CIFAR_PLACES = {
    (False, "python"): ("cifar-10-batches-py", "cifar-10-python.tar.gz"),
    (False, "binary"): ("cifar-10-batches-bin", "cifar-10-binary.tar.gz"),
    (True, "python"): ("cifar-100-python", "cifar-100-python.tar.gz"),
    (True, "binary"): ("cifar-100-binary", "cifar-100-binary.tar.gz"),
}


@pytest.fixture
def write_cifar() -> Callable[..., Arrays]:
    """Write CIFAR-10 (or, ``fine``, CIFAR-100) with few images and return what it holds."""

    def write(folder: Path, layout: str, *, fine: bool = False, packed: bool = False) -> Arrays:
        arrays = random_images((3, 32, 32), 4)
        names = [f"class_{i}" for i in range(100 if fine else 10)]
        files = cifar_files(layout, arrays, names, fine)
        inner, archive = CIFAR_PLACES[fine, layout]
        if packed:
            with tarfile.open(folder / archive, "w:gz") as tar:
                for name, content in files.items():
                    member = tarfile.TarInfo(f"{inner}/{name}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
        else:
            (folder / inner).mkdir()
            for name, content in files.items():
                (folder / inner / name).write_bytes(content)
        return arrays

    return write


@pytest.fixture
def write_tiny_imagenet() -> Callable[[Path], Arrays]:
    """Write Tiny-ImageNet with few classes and return its grey levels, which JPEG keeps."""

    def write(folder: Path) -> Arrays:
        rng = np.random.default_rng(0)
        ids = ["n02", "n01", "n03"]
        root = folder / "tiny-imagenet-200"
        (root / "val" / "images").mkdir(parents=True)
        (root / "wnids.txt").write_text("\n".join(ids))
        (root / "words.txt").write_text("n01\tcrane, bird\nn02\tgoldfish, fish\nn03\tcrane, tool\n")

        def save(path: Path, mode: str) -> NDArray[np.uint8]:
            # A constant 8×8 block has no other than its first, exactly kept coefficient.
            grey = np.kron(rng.integers(256, size=(8, 8)), np.ones((8, 8))).astype(np.uint8)
            Image.fromarray(grey).convert(mode).save(path, "JPEG", quality=100)
            return np.stack([grey] * 3)

        images, labels = [], []
        for label, identity in enumerate(ids):
            inner = root / "train" / identity / "images"
            inner.mkdir(parents=True)
            for i in range(10):
                mode = "L" if i % 2 else "RGB"
                images.append(save(inner / f"{identity}_{i}.JPEG", mode))
                labels.append(label)
        test_images, test_labels, lines = [], [], []
        for i in range(6):
            test_images.append(save(root / "val" / "images" / f"val_{i}.JPEG", "RGB"))
            test_labels.append((i * 2) % 3)
            lines.append(f"val_{i}.JPEG\t{ids[test_labels[-1]]}\t0\t0\t63\t63\n")
        (root / "val" / "val_annotations.txt").write_text("".join(lines))
        return np.array(images), np.array(labels), np.array(test_images), np.array(test_labels)

    return write
