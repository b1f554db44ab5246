"""Which of cuDNN's kernels convolutions take on a GPU: the same ones every time, or the fastest."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Literal

import torch

Kernels = Literal["default", "deterministic", "fastest"]
"""``deterministic``: those that add in a fixed order. ``fastest``: those that were fastest when
tried on the first batch of every shape, which may be others the next time."""


def chosen_kernels(kernels: Kernels) -> AbstractContextManager[None]:
    """While this lasts, convolutions on a GPU take these kernels; those on a CPU are unchanged."""
    cudnn = torch.backends.cudnn
    choice: AbstractContextManager[None] = cudnn.flags(
        enabled=cudnn.enabled,
        benchmark=cudnn.benchmark if kernels == "default" else kernels == "fastest",
        deterministic=cudnn.deterministic if kernels == "default" else kernels == "deterministic",
        allow_tf32=cudnn.allow_tf32,
    )
    return choice
