"""Damaged and hostile files of public datasets: each is refused by an error that names it."""

from __future__ import annotations

import gzip
import io
import pickle
import random
import struct
import tarfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from calibration.data import load_dataset
from calibration.memory import TooLargeError

Write = Callable[..., Any]


def refusals(name: str, folder: Path, file: Path, rounds: int, seed: int) -> int:
    """How often a file with bytes changed or cut off is refused; nothing else may be raised."""
    whole = file.read_bytes()
    chance = random.Random(seed)
    refused = 0
    for _ in range(rounds):
        content = bytearray(whole)
        for _ in range(chance.randrange(1, 5)):
            content[chance.randrange(min(len(content), 400))] = chance.randrange(256)
        file.write_bytes(content[: chance.choice([None, chance.randrange(len(content))])])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the content is not the official one
                load_dataset(name, {"data_dir": str(folder)})
        except ValueError as error:
            refused += 1
            said = str(error)
            assert file.name in said or said.startswith(f"{name}: "), said
    file.write_bytes(whole)
    return refused


def test_idx_files(tmp_path: Path, write_idx: Write) -> None:
    write_idx(tmp_path, compressed=True)
    file = tmp_path / "train-images-idx3-ubyte.gz"
    assert refusals("mnist", tmp_path, file, 60, 1) > 40


@pytest.mark.parametrize("size", [(2**32 - 1, 2**32 - 1, 28), (60_000, 2**20, 2**20)])
def test_an_idx_file_that_announces_too_much(
    tmp_path: Path, write_idx: Write, size: tuple[int, int, int]
) -> None:
    write_idx(tmp_path, compressed=True)
    header = b"\0\0\x08\x03" + struct.pack(">III", *size)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + bytes(10)))
    with pytest.raises(TooLargeError, match=r"train-images.*: unpacks to"):
        load_dataset("mnist", {"data_dir": str(tmp_path)})


@pytest.mark.parametrize(
    ("layout", "packed", "file"),
    [
        ("python", False, "cifar-10-batches-py/data_batch_1"),
        ("python", False, "cifar-10-batches-py/batches.meta"),
        ("binary", False, "cifar-10-batches-bin/batches.meta.txt"),
        ("python", True, "cifar-10-python.tar.gz"),
    ],
)
def test_cifar_files(
    tmp_path: Path, write_cifar: Write, layout: str, packed: bool, file: str
) -> None:
    write_cifar(tmp_path, layout, packed=packed)
    assert refusals("cifar10", tmp_path, tmp_path / file, 30, 2) >= 3


@pytest.mark.parametrize(
    "content",
    [
        {"data": [[1], [1, 2]], "labels": [0]},
        {"data": None, "labels": [2**99]},
        {"data": None, "labels": "many"},
        {"data": None, "labels": 3},
        {b"\xff": 1},
    ],
)
def test_a_cifar_batch_of_something_else(
    tmp_path: Path, write_cifar: Write, content: object
) -> None:
    write_cifar(tmp_path, "python")
    batch = tmp_path / "cifar-10-batches-py" / "data_batch_1"
    batch.write_bytes(pickle.dumps(content))
    with pytest.raises(ValueError, match="data_batch_1: "):
        load_dataset("cifar10", {"data_dir": str(tmp_path)})


def test_cifar_names_that_are_none(tmp_path: Path, write_cifar: Write) -> None:
    write_cifar(tmp_path, "python")
    (tmp_path / "cifar-10-batches-py" / "batches.meta").write_bytes(
        pickle.dumps({"label_names": 10})
    )
    with pytest.raises(ValueError, match=r"batches\.meta: names no classes"):
        load_dataset("cifar10", {"data_dir": str(tmp_path)})


def test_an_archive_that_announces_too_much(tmp_path: Path) -> None:
    member = tarfile.TarInfo("cifar-10-batches-py/data_batch_1")
    member.size = 2**50
    buffer = io.BytesIO()
    with gzip.open(buffer, "wb") as packed:
        packed.write(member.tobuf())
        packed.write(bytes(10_000))
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(buffer.getvalue())
    with pytest.raises(TooLargeError, match=r"data_batch_1 unpacks to 1\.126 PB"):
        load_dataset("cifar10", {"data_dir": str(tmp_path)})


def test_tiny_imagenet_files(tmp_path: Path, write_tiny_imagenet: Write) -> None:
    write_tiny_imagenet(tmp_path)
    root = tmp_path / "tiny-imagenet-200"
    image = root / "val" / "images" / "val_3.JPEG"
    assert refusals("tiny_imagenet", tmp_path, image, 30, 3) > 10
    assert refusals("tiny_imagenet", tmp_path, root / "words.txt", 10, 4) >= 1


def test_an_image_of_very_many_pixels(tmp_path: Path, write_tiny_imagenet: Write) -> None:
    """A few bytes that announce 1 and 4 gigapixels: nothing of it is decoded."""
    write_tiny_imagenet(tmp_path)
    image = tmp_path / "tiny-imagenet-200" / "val" / "images" / "val_3.JPEG"
    buffer = io.BytesIO()
    Image.new("RGB", (64, 64)).save(buffer, "JPEG")
    whole = bytearray(buffer.getvalue())
    start = whole.index(b"\xff\xc0") + 5  # height and width, after length and precision
    for side in (12_000, 65_000):
        whole[start : start + 4] = struct.pack(">HH", side, side)
        image.write_bytes(whole)
        with (
            warnings.catch_warnings(action="ignore"),
            pytest.raises(ValueError, match=r"val_3\.JPEG: (damaged|64×64 pixels)"),
        ):
            load_dataset("tiny_imagenet", {"data_dir": str(tmp_path)})
