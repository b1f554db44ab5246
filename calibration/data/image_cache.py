"""Images decoded and resized once, into a file that later reads memory-map."""

from __future__ import annotations

import io
import json
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from calibration.data.cache import made_once
from calibration.data.files import DataFileError
from calibration.data.mapped import MappedFile, mapped_rows
from calibration.prefetch import ahead

CACHE_VERSION = 1
"""Increase it when decoding gives other values."""
_PIXELS, _ABOUT = "pixels.bin", "about.json"
_EIGHT_BITS = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr")

OnError = Literal["refuse", "skip"]
ImageSource = Path | bytes


@dataclass(frozen=True)
class ImageForm:
    """The form of decoded images: uint8 of (C, height, width).

    Without a ``size`` all must have that of the first. ``crop`` scales an image until it covers
    the size and crops the centre; ``stretch`` changes its proportions; ``exact`` accepts only
    images of the size.
    """

    size: tuple[int, int] | None
    colours: Literal["rgb", "grey"] = "rgb"
    fit: Literal["crop", "stretch", "exact"] = "crop"

    def decode(self, source: ImageSource) -> NDArray[np.uint8]:
        """The pixels. Raises ``ValueError`` or whatever the decoder raises on a damaged image."""
        opened: Any = io.BytesIO(source) if isinstance(source, bytes) else source
        with Image.open(opened) as image:
            if image.mode not in _EIGHT_BITS:
                raise ValueError(
                    f"pixels of the mode {image.mode} have more than 8 bits; save it with 8"
                )
            if self.fit == "exact":
                self._check(image.size)  # before decoding: it may announce any size
            # Transparency is dropped: colours stay as stored.
            upright = ImageOps.exif_transpose(image).convert(
                "RGB" if self.colours == "rgb" else "L"
            )
        if self.size is not None and upright.size != self.size[::-1]:
            wanted, how = self.size[::-1], Image.Resampling.BILINEAR
            if self.fit == "crop":
                upright = ImageOps.fit(upright, wanted, how)
            else:
                upright = upright.resize(wanted, how)
        pixels = np.asarray(upright)
        return np.ascontiguousarray(np.atleast_3d(pixels).transpose(2, 0, 1))

    def _check(self, found: tuple[int, int]) -> None:
        assert self.size is not None
        if found != self.size[::-1]:
            wide, high = self.size[::-1]
            raise ValueError(f"{wide}×{high} pixels are expected, found {found[0]}×{found[1]}")


class Cached(NamedTuple):
    """The images that could be read, and their positions among all."""

    images: Tensor
    rows: NDArray[np.int64]


def cached_images(
    identity: Sequence[object],
    sources: Callable[[], Iterable[tuple[str, ImageSource]]],
    form: ImageForm,
    *,
    on_error: OnError = "refuse",
    remedy: str = "repair or remove it, or write on_error: skip",
) -> Cached:
    """All images in one array: from the cache, or decoded into it.

    ``identity`` changes with the images; ``sources`` gives their names and contents in order and
    is called only if they are not cached. Raises ``DataFileError`` naming the first unreadable
    image, unless such images are to be skipped, with a warning.
    """

    def write(draft: Path) -> None:
        about = _decode(draft / _PIXELS, sources(), form, on_error, remedy)
        (draft / _ABOUT).write_text(json.dumps(about))

    entry = [CACHE_VERSION, asdict(form), on_error, identity]
    cached, skipped = made_once("images", entry, read=_read, write=write)
    if skipped:
        warnings.warn(
            f"{len(skipped)} images cannot be read and are left out; the first: {skipped[0]}",
            stacklevel=3,
        )
    return cached


def _read(place: Path) -> tuple[Cached, list[str]] | None:
    try:
        about = json.loads((place / _ABOUT).read_text())
        file = MappedFile(place / _PIXELS, 0, tuple(about["shape"]), "|u1")
        rows = np.delete(np.arange(about["sources"]), about["skipped rows"])
        whole = file.is_there and len(rows) == file.shape[0]
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None
    return (Cached(mapped_rows(file, torch.uint8), rows), about["skipped"]) if whole else None


def _decode(
    target: Path,
    sources: Iterable[tuple[str, ImageSource]],
    form: ImageForm,
    on_error: OnError,
    remedy: str,
) -> dict[str, Any]:
    """Decode all into ``target``, with one thread per processor."""

    def decoded(named: tuple[str, ImageSource]) -> tuple[str, NDArray[np.uint8] | str]:
        name, source = named
        try:
            return name, form.decode(source)
        except FileNotFoundError:
            return name, "no such file"
        except ValueError as error:
            return name, str(error)
        except Exception as error:  # decoders of damaged images raise almost anything
            return name, f"damaged ({error})"

    threads = len(os.sched_getaffinity(0))
    shape: tuple[int, ...] | None = None
    count = 0
    skipped: dict[int, str] = {}
    with target.open("wb") as file:
        results = ahead(decoded, sources, threads=threads, depth=16 * threads)
        for row, (name, pixels) in enumerate(results):
            count += 1
            if not isinstance(pixels, str):
                shape = shape or pixels.shape
                if pixels.shape == shape:
                    file.write(pixels.data)
                    continue
                found, first = (f"{wide}×{high}" for _, high, wide in (pixels.shape, shape))
                pixels = f"{found} pixels, and the first image has {first}; give a size"
            if on_error == "refuse":
                raise DataFileError(f"{name}: {pixels}; {remedy}")
            skipped[row] = f"{name}: {pixels}"
        file.flush()
        os.fsync(file.fileno())
    if shape is None:
        raise DataFileError(
            f"none of the {count} images can be read: {next(iter(skipped.values()), '')}"
        )
    return {
        "shape": [count - len(skipped), *shape],
        "sources": count,
        "skipped rows": list(skipped),
        "skipped": list(skipped.values()),
    }
