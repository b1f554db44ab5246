"""CIFAR-10 and CIFAR-100 from the official Python and binary archives, packed or not."""

from __future__ import annotations

import io
import pickle
import tarfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from calibration.data.dataset import DATASETS, Part
from calibration.data.files import DataFileError, DownloadedOptions, absent, verify
from calibration.data.fixed import FixedDataset
from calibration.memory import TooLargeError, check_fits

PIXELS = 3 * 32 * 32
SITE = "https://www.cs.toronto.edu/~kriz/cifar.html"


@dataclass(frozen=True)
class Layout:
    """One official distribution: its folder, archive and files.

    A binary record has ``label_bytes`` bytes of labels, the last of them the fine one,
    then the pixels; None means pickled batches with the labels under ``labels``.
    """

    folder: str
    archive: str
    train: tuple[str, ...]
    test: str
    names: str
    labels: str = ""
    label_names: str = ""
    label_bytes: int | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """All files that are read."""
        return (*self.train, self.test, self.names)


_BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))
CIFAR10 = (
    Layout(
        "cifar-10-batches-py",
        "cifar-10-python.tar.gz",
        _BATCHES,
        "test_batch",
        "batches.meta",
        labels="labels",
        label_names="label_names",
    ),
    Layout(
        "cifar-10-batches-bin",
        "cifar-10-binary.tar.gz",
        tuple(f"{batch}.bin" for batch in _BATCHES),
        "test_batch.bin",
        "batches.meta.txt",
        label_bytes=1,
    ),
)
CIFAR100 = (
    Layout(
        "cifar-100-python",
        "cifar-100-python.tar.gz",
        ("train",),
        "test",
        "meta",
        labels="fine_labels",
        label_names="fine_label_names",
    ),
    Layout(
        "cifar-100-binary",
        "cifar-100-binary.tar.gz",
        ("train.bin",),
        "test.bin",
        "fine_label_names.txt",
        label_bytes=2,
    ),
)


@DATASETS.register("cifar10")
class Cifar10(DownloadedOptions):
    """60,000 colour photographs of 32×32 pixels, 10 classes (files needed)."""

    def read(self) -> FixedDataset:
        """Read the files. Raises ``DataFileError`` if they are absent or damaged."""
        return _load("cifar10", self.folder, CIFAR10)


@DATASETS.register("cifar100")
class Cifar100(DownloadedOptions):
    """60,000 colour photographs of 32×32 pixels, 100 fine classes (files needed)."""

    def read(self) -> FixedDataset:
        """Read the files. Raises ``DataFileError`` if they are absent or damaged."""
        return _load("cifar100", self.folder, CIFAR100)


def _load(name: str, folder: Path, layouts: Sequence[Layout]) -> FixedDataset:
    layout, place = _locate(name, folder, layouts)
    content = _read_archive(place, layout) if place.is_file() else _read_folder(place, layout)
    lacking = [file for file in layout.files if file not in content]
    if lacking:
        raise DataFileError(f"{name}: {place} lacks {', '.join(lacking)}")
    classes = _class_names(content[layout.names], layout, place)

    def part(files: Sequence[str]) -> Part:
        batches = [_batch(content[file], layout, place / file) for file in files]
        for file in files:
            verify(name, place / file, file, content[file])
        return Part(*(torch.cat(tensors) for tensors in zip(*batches, strict=True)))

    return FixedDataset(name, "image", part(layout.train), classes, test=part([layout.test]))


def _locate(name: str, folder: Path, layouts: Sequence[Layout]) -> tuple[Layout, Path]:
    for layout in layouts:
        for place in (folder / layout.folder, folder):
            if (place / layout.train[0]).is_file():
                return layout, place
    for layout in layouts:
        if (folder / layout.archive).is_file():
            return layout, folder / layout.archive
    expected = [f"{layout.folder}/ or {layout.archive}" for layout in layouts]
    raise absent(name, folder, expected, [], f"Get one of them from {SITE}.")


def _read_folder(place: Path, layout: Layout) -> dict[str, bytes]:
    there = (place / file for file in layout.files)
    return {path.name: path.read_bytes() for path in there if path.is_file()}


def _read_archive(place: Path, layout: Layout) -> dict[str, bytes]:
    content = {}
    try:
        with tarfile.open(place, "r:gz") as archive:
            for member in archive:
                file = Path(member.name).name
                stored = archive.extractfile(member) if file in layout.files else None
                if stored is not None:
                    check_fits(member.size, f"{place}: {file} unpacks to")
                    content[file] = stored.read()
    except TooLargeError:
        raise
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as error:
        raise DataFileError(f"{place}: truncated or damaged ({error}); fetch it again") from error
    return content


def _class_names(content: bytes, layout: Layout, place: Path) -> tuple[str, ...]:
    if layout.label_bytes is not None:
        return tuple(content.decode(errors="replace").split())
    path = place / layout.names
    names = _field(_unpickle(content, path), layout.label_names, path)
    if not isinstance(names, list | tuple):
        raise DataFileError(f"{path}: names no classes; fetch it again")
    return tuple(str(name) for name in names)


def _batch(content: bytes, layout: Layout, path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    if layout.label_bytes is None:
        batch = _unpickle(content, path)
        pixels, numbers = _field(batch, "data", path), _field(batch, layout.labels, path)
        try:
            pixels, labels = np.asarray(pixels), np.asarray(numbers, dtype=np.int64).reshape(-1)
        except (TypeError, ValueError, OverflowError) as error:
            raise DataFileError(f"{path}: damaged ({error}); fetch it again") from error
        if pixels.dtype != np.uint8 or pixels.shape != (len(labels), PIXELS):
            raise DataFileError(
                f"{path}: {len(labels)} labels need {len(labels)}×{PIXELS} bytes of pixels, "
                f"found {pixels.shape} of {pixels.dtype}; fetch it again"
            )
    else:
        record = layout.label_bytes + PIXELS
        if not content or len(content) % record:
            raise DataFileError(
                f"{path}: {len(content)} bytes are not a whole number of records of {record}; "
                "fetch it again"
            )
        records = np.frombuffer(content, dtype=np.uint8).reshape(-1, record)
        pixels = records[:, layout.label_bytes :].copy()
        labels = records[:, layout.label_bytes - 1].astype(np.int64)
    return torch.from_numpy(pixels).reshape(-1, 3, 32, 32), torch.from_numpy(labels)


def _field(batch: object, key: str, path: Path) -> Any:
    if not isinstance(batch, dict) or key not in batch:
        raise DataFileError(f"{path}: no {key!r} inside; fetch it again")
    return batch[key]


_RECONSTRUCT = np.empty(0).__reduce__()[0]
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class _PlainUnpickler(pickle.Unpickler):
    """Loads containers, numbers, strings and NumPy arrays; refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return _ALLOWED[module, name]


def _unpickle(content: bytes, path: Path) -> object:
    try:
        # Written by Python 2, whose strings are bytes; latin1 also restores array buffers.
        loaded = _PlainUnpickler(io.BytesIO(content), encoding="latin1").load()
    except Exception as error:  # damaged pickles raise almost anything
        raise DataFileError(
            f"{path}: damaged, or not a plain CIFAR batch ({error}); fetch it again"
        ) from error
    if isinstance(loaded, dict):
        return {k.decode("latin1") if isinstance(k, bytes) else k: v for k, v in loaded.items()}
    return loaded
