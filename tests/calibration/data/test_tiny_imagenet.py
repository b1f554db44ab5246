from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from calibration.data import Dataset, load_dataset
from calibration.data.files import DataFileError

Write = Callable[[Path], Any]


def load(folder: Path) -> Dataset:
    with pytest.warns(UserWarning, match="30 training and 6 validation images; officially"):
        return load_dataset("tiny_imagenet", {"data_dir": str(folder)})


def test_images_are_read_back_exactly(tmp_path: Path, write_tiny_imagenet: Write) -> None:
    images, labels, test_images, test_labels = write_tiny_imagenet(tmp_path)
    dataset = load(tmp_path)
    assert dataset.class_names == ("goldfish", "crane (n01)", "crane (n03)")
    pool, test = dataset._pool, dataset.test(0)  # type: ignore[attr-defined]
    for part, expected, classes in ((pool, images, labels), (test, test_images, test_labels)):
        assert part.inputs.dtype == torch.uint8
        np.testing.assert_array_equal(part.inputs, expected)
        np.testing.assert_array_equal(part.labels, classes)
    inside = load(tmp_path / "tiny-imagenet-200")
    assert inside.fingerprint == dataset.fingerprint


def test_colours_come_in_the_order_red_green_blue(
    tmp_path: Path, write_tiny_imagenet: Write
) -> None:
    write_tiny_imagenet(tmp_path)
    path = tmp_path / "tiny-imagenet-200" / "val" / "images" / "val_0.JPEG"
    Image.new("RGB", (64, 64), (200, 100, 50)).save(path, "JPEG", quality=100)
    first = load(tmp_path).test(0).inputs[0].double()
    np.testing.assert_allclose(first.mean((1, 2)), [200, 100, 50], atol=2)


def test_absent_and_damaged_files_are_named(tmp_path: Path, write_tiny_imagenet: Write) -> None:
    def failure() -> str:
        with pytest.raises(DataFileError) as caught:
            load(tmp_path)
        return str(caught.value)

    with pytest.raises(DataFileError, match=r"tiny-imagenet-200/\. Unpack http.*data_dir"):
        load_dataset("tiny_imagenet", {"data_dir": str(tmp_path)})
    write_tiny_imagenet(tmp_path)
    root = tmp_path / "tiny-imagenet-200"
    image = root / "val" / "images" / "val_3.JPEG"
    whole = image.read_bytes()
    image.write_bytes(whole[: len(whole) // 2])
    assert "val_3.JPEG: damaged" in failure()
    Image.new("RGB", (60, 64)).save(image, "JPEG")
    assert "val_3.JPEG: 64×64 pixels are expected, found 60×64" in failure()
    image.unlink()
    assert "val_3.JPEG: no such file" in failure()
    image.write_bytes(whole)
    annotations = root / "val" / "val_annotations.txt"
    annotations.write_text(annotations.read_text().replace("n03", "n99"))
    with pytest.raises(DataFileError, match="class 'n99' is not in wnids"):
        load_dataset("tiny_imagenet", {"data_dir": str(tmp_path)})
    for path in (root / "train" / "n01" / "images").iterdir():
        path.unlink()
    with pytest.raises(DataFileError, match=r"n01/images has no \.JPEG files"):
        load_dataset("tiny_imagenet", {"data_dir": str(tmp_path)})
