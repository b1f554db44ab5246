"""Augmentation of image batches on tensors.

Each image of a batch (N, C, H, W) has its own random draws. The generator is on the CPU, so that a
seed gives the same batch on every device, and a resumed training the same batches as one that was
never interrupted. Colour operations need 8-bit images (uint8), like torchvision's functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from calibration.transfer import sent

Augmentation = Literal["crop_flip", "crop", "flip", "colour", "cutout", "rand_augment"]
EIGHT_BITS_ONLY = ("colour", "rand_augment")
PADDING = 4


def augmented(images: Tensor, names: Sequence[str], generator: torch.Generator) -> Tensor:
    """Apply the named augmentations to the images, in this order."""
    for name in names:
        images = _AUGMENTATIONS[name](images, generator)
    return images


def crop_and_flip(images: Tensor, generator: torch.Generator, *, padding: int = PADDING) -> Tensor:
    """Pad by ``padding`` black pixels, crop back at random and mirror about half of the images.

    ``images`` is (N, C, H, W) of any type; each image gets its own offset and coin flip, drawn
    from ``generator`` (on the CPU, so that a seed gives the same batch on every device).
    """
    n, _, height, width = images.shape
    offsets = torch.randint(0, 2 * padding + 1, (2, n, 1), generator=generator)
    mirrored = torch.rand(n, 1, generator=generator) < 0.5
    rows = offsets[0] + torch.arange(height)
    columns = offsets[1] + torch.arange(width)
    columns = torch.where(mirrored, columns.flip(1), columns)
    return _picked(F.pad(images, (padding,) * 4), rows, columns)


def crop(images: Tensor, generator: torch.Generator) -> Tensor:
    """Pad by 4 black pixels and crop back at random."""
    n, _, height, width = images.shape
    offsets = torch.randint(0, 2 * PADDING + 1, (2, n, 1), generator=generator)
    rows, columns = offsets[0] + torch.arange(height), offsets[1] + torch.arange(width)
    return _picked(F.pad(images, (PADDING,) * 4), rows, columns)


def flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror each image left to right with probability 1/2."""
    mirrored = torch.rand(len(images), 1, 1, 1, generator=generator) < 0.5
    return torch.where(sent(mirrored, images.device), images.flip(3), images)


def cutout(images: Tensor, generator: torch.Generator) -> Tensor:
    """Zero a square of half the shorter side around a random pixel (DeVries, Taylor 2017).

    It may extend beyond the edge. Zero is black in 8 bits, and the mean after standardisation.
    """
    n, _, height, width = images.shape
    side = max(1, min(height, width) // 2)
    corner = [torch.randint(0, most, (n, 1, 1, 1), generator=generator) for most in (height, width)]
    top, left = sent(torch.stack(corner), images.device) - side // 2
    rows = torch.arange(height, device=images.device)[:, None]
    columns = torch.arange(width, device=images.device)
    inside = (rows >= top) & (rows < top + side) & (columns >= left) & (columns < left + side)
    return images.masked_fill(inside, 0)


def colour_jitter(images: Tensor, generator: torch.Generator) -> Tensor:
    """Brightness, contrast and saturation, each by a factor in 1 ± 0.4."""
    factors = 1 + 0.4 * (2 * torch.rand(3, len(images), generator=generator) - 1)
    changes = (brightness, contrast, saturation)
    for change, factor in zip(changes, sent(factors, images.device), strict=True):
        images = change(images, factor)
    return images


def rand_augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """RandAugment (Cubuk et al. 2020): two random operations, at magnitude 9 of 30.

    All of torchvision's operations except equalize; pixels moved in from outside are black.
    """
    for _ in range(2):
        chosen = torch.randint(0, len(RANDOM_OPERATIONS), (len(images),), generator=generator)
        signs = (2 * torch.randint(0, 2, (len(images),), generator=generator) - 1).float()
        images = images.clone()
        for place, operation in enumerate(RANDOM_OPERATIONS):
            of_it = torch.nonzero(chosen == place).flatten()
            if len(of_it):
                there = sent(of_it, images.device)
                images[there] = operation(images[there], sent(signs[of_it], images.device))
    return images


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with black; ``factor`` has one number per image."""
    return _blend(images, torch.zeros((), device=images.device), factor)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the mean grey of the image."""
    mean = _grey(images).floor().mean((1, 2, 3), keepdim=True)
    return _blend(images, mean, factor)


def saturation(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the grey image; single-channel images are returned unchanged."""
    return images if images.shape[1] == 1 else _blend(images, _grey(images).floor(), factor)


def sharpness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the smoothed image; pixels at the edge are not smoothed."""
    if min(images.shape[2:]) <= 2:
        return images
    channels = images.shape[1]
    kernel = torch.ones(3, 3, device=images.device)
    kernel[1, 1] = 5.0
    kernel = (kernel / kernel.sum()).expand(channels, 1, 3, 3)
    smooth = images.float()
    smooth[:, :, 1:-1, 1:-1] = F.conv2d(images.float(), kernel, groups=channels).round()
    return _blend(images, smooth, factor)


def posterize(images: Tensor, bits: int) -> Tensor:
    """Keep the ``bits`` most significant bits of every value."""
    return torch.bitwise_and(images, 256 - 2 ** (8 - bits))


def solarize(images: Tensor, threshold: float) -> Tensor:
    """Invert values of at least ``threshold``."""
    return torch.where(images >= threshold, 255 - images, images)


def autocontrast(images: Tensor) -> Tensor:
    """Stretch every channel to the full range; constant channels are left unchanged."""
    low = images.amin((2, 3), keepdim=True).float()
    high = images.amax((2, 3), keepdim=True).float()
    scale = 255.0 / (high - low)
    flat = ~scale.isfinite()
    low, scale = low.masked_fill(flat, 0.0), scale.masked_fill(flat, 1.0)
    return ((images - low) * scale).clamp(0, 255).to(torch.uint8)


def affine(images: Tensor, matrices: Tensor) -> Tensor:
    """Affine map: output (x, y) from the centre is input M·(x, y, 1), nearest, black outside.

    ``matrices`` is (N, 2, 3) in pixels.
    """
    height, width = images.shape[2:]
    # Both are multiples of 1/2, hence exact.
    half = (width - 1) / 2, (height - 1) / 2
    y, x = torch.meshgrid(
        torch.arange(height, device=images.device) - half[1],
        torch.arange(width, device=images.device) - half[0],
        indexing="ij",
    )
    points = torch.stack([x.flatten(), y.flatten(), torch.ones_like(x).flatten()])
    # Round half up, not to even: a shift by half a pixel must move all rows alike.
    source = matrices @ points
    column, row = ((source[:, i] + half[i] + 0.5).floor().long() for i in (0, 1))
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    place = row.clamp(0, height - 1) * width + column.clamp(0, width - 1)
    taken = images.flatten(2).gather(2, place[:, None].expand(-1, images.shape[1], -1))
    return (taken * inside[:, None]).reshape(images.shape)


def _picked(padded: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    picked = torch.arange(len(padded), device=padded.device)[:, None, None]
    rows, columns = sent(rows, padded.device), sent(columns, padded.device)
    # Advanced indices on both sides of the channel slice move channels last: move them back.
    return padded[picked, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def _blend(images: Tensor, other: Tensor, factor: Tensor) -> Tensor:
    weight = factor[:, None, None, None]
    return (weight * images + (1 - weight) * other).clamp(0, 255).to(torch.uint8)


def _grey(images: Tensor) -> Tensor:
    if images.shape[1] != 3:
        return images.float().mean(1, keepdim=True)
    red, green, blue = images.float().split(1, dim=1)
    grey: Tensor = 0.2989 * red + 0.587 * green + 0.114 * blue
    return grey


_MAGNITUDE = 9 / 30
_Operation = Callable[[Tensor, Tensor], Tensor]


def _shear(along: int) -> _Operation:
    def operation(images: Tensor, signs: Tensor) -> Tensor:
        matrices = torch.eye(2, 3, device=images.device).repeat(len(images), 1, 1)
        matrices[:, along, 1 - along] = signs * 0.3 * _MAGNITUDE
        return affine(images, matrices)

    return operation


def _translate(along: int) -> _Operation:
    def operation(images: Tensor, signs: Tensor) -> Tensor:
        pixels = signs * int(150 / 331 * images.shape[3 - along] * _MAGNITUDE)
        matrices = torch.eye(2, 3, device=images.device).repeat(len(images), 1, 1)
        matrices[:, along, 2] = pixels
        return affine(images, matrices)

    return operation


def _rotate(images: Tensor, signs: Tensor) -> Tensor:
    angle = signs * float(torch.deg2rad(torch.tensor(30 * _MAGNITUDE)))
    cos, sin, none = angle.cos(), angle.sin(), torch.zeros_like(angle)
    rows = torch.stack([cos, -sin, none, sin, cos, none], dim=1)
    return affine(images, rows.reshape(-1, 2, 3))


def _by_factor(change: _Operation) -> _Operation:
    return lambda images, signs: change(images, 1 + signs * 0.9 * _MAGNITUDE)


RANDOM_OPERATIONS: tuple[_Operation, ...] = (
    lambda images, signs: images,
    _shear(0),
    _shear(1),
    _translate(0),
    _translate(1),
    _rotate,
    *map(_by_factor, (brightness, saturation, contrast, sharpness)),
    lambda images, signs: posterize(images, 8 - round(_MAGNITUDE * 4)),
    lambda images, signs: solarize(images, 255 * (1 - _MAGNITUDE)),
    lambda images, signs: autocontrast(images),
)

_AUGMENTATIONS: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "crop_flip": crop_and_flip,
    "crop": crop,
    "flip": flip,
    "colour": colour_jitter,
    "cutout": cutout,
    "rand_augment": rand_augment,
}
assert _AUGMENTATIONS.keys() == set(get_args(Augmentation))
