"""Augmentation of image batches on tensors."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def crop_and_flip(images: Tensor, generator: torch.Generator, *, padding: int = 4) -> Tensor:
    """Pad by ``padding`` black pixels, crop back at random and mirror half of the images.

    ``images`` is (N, C, H, W) of any type; every image gets its own offset and coin, drawn
    from ``generator`` (on the CPU, so that a seed gives the same batch on every device).
    """
    n, _, height, width = images.shape
    offsets = torch.randint(0, 2 * padding + 1, (2, n, 1), generator=generator)
    mirrored = torch.rand(n, 1, generator=generator) < 0.5
    rows = offsets[0] + torch.arange(height)
    columns = offsets[1] + torch.arange(width)
    columns = torch.where(mirrored, columns.flip(1), columns)
    padded = F.pad(images, (padding,) * 4)
    picked = torch.arange(n, device=images.device)[:, None, None]
    rows, columns = rows.to(images.device), columns.to(images.device)
    # Advanced indices around the channel slice move it to the end: bring it back.
    return padded[picked, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
