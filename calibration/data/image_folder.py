"""Images in folders: one directory per class."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BeforeValidator, Field

from calibration.data.cache import file_identity
from calibration.data.dataset import DATASETS, Dataset, DatasetOptions, Part
from calibration.data.files import DataFileError
from calibration.data.fixed import TEST_SHARE, FixedDataset
from calibration.data.image_cache import Cached, ImageForm, OnError, cached_images
from calibration.data.protocol import Share

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")

_Side = Annotated[int, Field(ge=1, le=4096)]
ImageSize = Annotated[
    tuple[_Side, _Side],
    BeforeValidator(
        lambda given: (given, given) if isinstance(given, int) else given,
        json_schema_input_type=_Side | tuple[_Side, _Side],
    ),
]
"""Height and width in pixels; one number for both."""


class ImageOptions(DatasetOptions):
    """How images are decoded: options shared by ``image_folder`` and ``image_table``."""

    size: ImageSize | None = None
    fit: Literal["crop", "stretch"] = "crop"
    colours: Literal["rgb", "grey"] = "rgb"
    on_error: OnError = "refuse"
    name: str | None = None
    test_share: Share = TEST_SHARE

    @property
    def form(self) -> ImageForm:
        """The form of decoded images."""
        return ImageForm(self.size, self.colours, self.fit)

    def dataset(
        self, name: str, parts: list[Part], class_names: tuple[str, ...], origin: Path
    ) -> Dataset:
        """The dataset of these rows, with separate test rows if given."""
        for part in parts[:1]:
            counts = torch.bincount(part.labels, minlength=len(class_names))
            for place in torch.nonzero(counts == 0).flatten().tolist():
                raise DataFileError(
                    f"{origin}: no image of class {class_names[place]!r} is readable"
                )
        return FixedDataset(
            self.name or name,
            "image",
            parts[0],
            class_names,
            test=parts[1] if len(parts) == 2 else None,
            test_share=self.test_share,
        )


@DATASETS.register("image_folder")
class ImageFolder(ImageOptions):
    """JPEG, PNG and WebP images in a directory for every class, which names it.

    ``path`` contains the directories, ``test_path`` those of a test part; without it
    ``test_share`` of the images is set aside. Images are scaled and cropped to ``size`` (a
    number of pixels, or [height, width]) or, with ``fit`` stretch, stretched to it; without a
    size all must have the same. They are decoded once, into $CALSWEEP_CACHE. ``on_error`` skip
    leaves out unreadable images, with a warning.
    """

    path: Path
    test_path: Path | None = None

    def load(self) -> Dataset:
        """Decode the images or read the cache. Raises ``DataFileError`` naming a bad image."""
        class_names = _classes(self.path)
        parts = [self._part(self.path, class_names)]
        if self.test_path is not None:
            others = [name for name in _classes(self.test_path) if name not in class_names]
            if others:
                raise DataFileError(f"{self.test_path}: class {others[0]!r} is not in {self.path}")
            parts.append(self._part(self.test_path, class_names))
            shapes = [tuple(part.inputs.shape[1:]) for part in parts]
            if shapes[0] != shapes[1]:
                raise DataFileError(
                    f"{self.test_path}: images are of {shapes[1][1:]} pixels, and of "
                    f"{shapes[0][1:]} in {self.path}; give a size"
                )
        return self.dataset(self.path.resolve().name, parts, class_names, self.path)

    def _part(self, root: Path, class_names: tuple[str, ...]) -> Part:
        files, labels = [], []
        for label, name in enumerate(class_names):
            if root != self.path and not (root / name).is_dir():
                continue  # test data need not have every class
            inside = _images(root / name)
            files += inside
            labels += [label] * len(inside)
        identity = file_identity(files, root, "look again")
        found = cached_images(
            identity,
            lambda: ((str(path), path) for path in files),
            self.form,
            on_error=self.on_error,
        )
        return part_of(found, labels)


def part_of(found: Cached, labels: Any) -> Part:
    """The images that could be read, with their labels, int64."""
    return Part(
        found.images, torch.as_tensor(labels, dtype=torch.int64)[torch.from_numpy(found.rows)]
    )


def _classes(root: Path) -> tuple[str, ...]:
    try:
        inside = sorted(p.name for p in root.iterdir() if p.is_dir() and p.name[0] not in "._")
    except OSError as error:
        raise DataFileError(f"{root}: {error.strerror} (looked for {root.absolute()})") from None
    if len(inside) < 2:
        raise DataFileError(
            f"{root}: a directory for every class is expected, at least two; found "
            f"{inside[0] + '/ alone' if inside else 'none'}"
        )
    return tuple(inside)


def _images(directory: Path) -> list[Path]:
    """The images in a class's directory and its subdirectories, by name."""
    found = sorted(
        path
        for path in directory.rglob("*")
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()
    )
    if not found:
        raise DataFileError(
            f"{directory}: no image in it ({', '.join(SUFFIXES)}); add some, or remove the "
            "directory, which stands for a class"
        )
    return found
