"""MNIST and Fashion-MNIST from their idx files, compressed or not."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from calibration.data.dataset import DATASETS, Part
from calibration.data.files import DataFileError, DownloadedOptions, absent, verify
from calibration.data.fixed import FixedDataset
from calibration.memory import check_fits

TRAIN = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
_TEST = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

DEBIAN_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
FASHION_NAMES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)


@DATASETS.register("mnist")
class Mnist(DownloadedOptions):
    """70,000 handwritten digits as 28×28 grey images, 10 classes (files needed)."""

    def read(self) -> FixedDataset:
        """Read the idx files. Raises ``DataFileError`` if they are absent or damaged."""
        folders = [self.folder / "mnist", self.folder / "MNIST" / "raw", self.folder]
        remedy = "Get them from https://ossci-datasets.s3.amazonaws.com/mnist/."
        return _load("mnist", folders, [], tuple("0123456789"), remedy)


@DATASETS.register("fashion_mnist")
class FashionMnist(DownloadedOptions):
    """70,000 pieces of clothing as 28×28 grey images, 10 classes (files needed)."""

    def read(self) -> FixedDataset:
        """Read the idx files. Raises ``DataFileError`` if they are absent or damaged."""
        folders = [
            self.folder / "fashion_mnist",
            self.folder / "fashion-mnist",
            self.folder / "FashionMNIST" / "raw",
            self.folder,
        ]
        remedy = (
            "Install Debian's package dataset-fashion-mnist, or get them from "
            "https://github.com/zalandoresearch/fashion-mnist."
        )
        return _load("fashion_mnist", folders, [DEBIAN_FASHION_MNIST], FASHION_NAMES, remedy)


def _load(
    name: str, folders: list[Path], also: list[Path], classes: tuple[str, ...], remedy: str
) -> FixedDataset:
    for folder in (*folders, *also):
        if _locate(folder, TRAIN[0]) is not None:
            rows = _read_part(name, folder, TRAIN)
            return FixedDataset(name, "image", rows, classes, test=_read_part(name, folder, _TEST))
    expected = (
        f"{', '.join((*TRAIN, *_TEST))} (with or without .gz, there or in {folders[0].name}/)"
    )
    raise absent(name, folders[-1], [expected], also, remedy)


def _locate(folder: Path, file: str) -> Path | None:
    candidates = (folder / file, folder / f"{file}.gz")
    return next((path for path in candidates if path.is_file()), None)


def _read_part(name: str, folder: Path, files: tuple[str, str]) -> Part:
    arrays = []
    for file in files:
        path = _locate(folder, file)
        if path is None:
            raise DataFileError(f"{name}: {folder} lacks {file} (or {file}.gz)")
        content = _content(path)
        arrays.append(parse_idx(content, str(path)))
        verify(name, path, file, content)
    images, labels = arrays
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise DataFileError(
            f"{name}: {folder} has {files[0]} of shape {images.shape} "
            f"and {files[1]} of shape {labels.shape}"
        )
    return Part(torch.from_numpy(images)[:, None], torch.from_numpy(labels.astype(np.int64)))


def _content(path: Path) -> bytes:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            # One byte beyond the announced length shows that there is too much, however
            # much that is.
            header = file.read(4)
            header += file.read(4 * header[3]) if len(header) == 4 else b""
            announced = math.prod(_dimensions(header))
            check_fits(announced, f"{path}: unpacks to")
            return header + file.read(announced + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise DataFileError(f"{path}: truncated or damaged ({error}); fetch it again") from error


def _dimensions(content: bytes) -> tuple[int, ...]:
    """The shape that an idx file's header announces; () if the header is truncated."""
    whole = content[4 : 4 + 4 * content[3]] if len(content) >= 4 else b""
    return tuple(int(size) for size in np.frombuffer(whole[: len(whole) // 4 * 4], dtype=">u4"))


def parse_idx(content: bytes, origin: str) -> NDArray[np.uint8]:
    """Return the array of an idx file of unsigned bytes.

    The format: two zero bytes, the type (8), the number of dimensions, then each
    dimension as a big-endian 32-bit integer, then the values. Raises
    ``DataFileError`` naming ``origin`` if the header or the length is wrong.
    """
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise DataFileError(f"{origin}: not an idx file of unsigned bytes")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise DataFileError(f"{origin}: truncated within its header; fetch it again")
    shape = _dimensions(content)
    expected = start + math.prod(shape)
    if len(content) != expected:
        raise DataFileError(
            f"{origin}: {len(content)} bytes, but its header announces {expected}; fetch it again"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape).copy()
