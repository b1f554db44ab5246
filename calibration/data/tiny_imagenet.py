"""Tiny-ImageNet from its official folder."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import torch

from calibration.data.cache import file_identity
from calibration.data.dataset import DATASETS, Part
from calibration.data.files import DataFileError, DownloadedOptions, absent
from calibration.data.fixed import FixedDataset
from calibration.data.image_cache import ImageForm, cached_images

FOLDER = "tiny-imagenet-200"
SIDE = 64
OFFICIAL_ROWS = (100_000, 10_000)


@DATASETS.register("tiny_imagenet")
class TinyImageNet(DownloadedOptions):
    """110,000 colour photographs of 64×64 pixels, 200 classes (files needed)."""

    def read(self) -> FixedDataset:
        """Read all images; the labelled validation images are the test part.

        They are decoded once, into a cache. The official test images have no labels. Raises
        ``DataFileError`` if files are absent or damaged.
        """
        places = (self.folder / FOLDER, self.folder)
        place = next((place for place in places if (place / "wnids.txt").is_file()), None)
        if place is None:
            remedy = "Unpack http://cs231n.stanford.edu/tiny-imagenet-200.zip there."
            raise absent("tiny_imagenet", self.folder, [f"{FOLDER}/"], [], remedy)
        ids = _lines(place / "wnids.txt")
        train, test = _training_files(place, ids), _test_files(place, ids)
        if (len(train), len(test)) != OFFICIAL_ROWS:
            warnings.warn(
                f"{place}: {len(train)} training and {len(test)} validation images; "
                f"officially there are {OFFICIAL_ROWS[0]} and {OFFICIAL_ROWS[1]}",
                stacklevel=2,
            )
        return FixedDataset(
            "tiny_imagenet",
            "image",
            _read(place, train),
            _class_names(place, ids),
            test=_read(place, test),
        )


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise DataFileError(f"tiny_imagenet: {path.parent} lacks {path.name}")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise DataFileError(f"{path}: damaged ({error}); unpack the archive again") from error
    return [line for line in text.splitlines() if line.strip()]


def _class_names(place: Path, ids: Sequence[str]) -> tuple[str, ...]:
    words = dict(line.split("\t", 1) for line in _lines(place / "words.txt") if "\t" in line)
    firsts = [words.get(identity, identity).partition(",")[0] for identity in ids]
    # Some first names belong to two classes ("crane"): their identifiers distinguish them.
    return tuple(
        f"{first} ({identity})" if firsts.count(first) > 1 else first
        for first, identity in zip(firsts, ids, strict=True)
    )


def _training_files(place: Path, ids: Sequence[str]) -> list[tuple[Path, int]]:
    files = []
    for label, identity in enumerate(ids):
        folder = place / "train" / identity / "images"
        images = sorted(folder.glob("*.JPEG"))
        if not images:
            raise DataFileError(f"tiny_imagenet: {folder} has no .JPEG files; unpack it again")
        files += [(path, label) for path in images]
    return files


def _test_files(place: Path, ids: Sequence[str]) -> list[tuple[Path, int]]:
    labels = {identity: label for label, identity in enumerate(ids)}
    annotations = place / "val" / "val_annotations.txt"
    files = []
    for line in _lines(annotations):
        file, identity = (*line.split("\t"), "")[:2]
        if identity not in labels:
            raise DataFileError(f"{annotations}: class {identity!r} is not in wnids.txt")
        files.append((place / "val" / "images" / file, labels[identity]))
    return files


def _read(place: Path, files: Sequence[tuple[Path, int]]) -> Part:
    remedy = "unpack the archive again"
    found = cached_images(
        file_identity((path for path, _ in files), place, remedy),
        lambda: ((str(path), path) for path, _ in files),
        ImageForm((SIDE, SIDE), fit="exact"),
        remedy=remedy,
    )
    return Part(found.images, torch.tensor([label for _, label in files], dtype=torch.int64))
