"""Which cuDNN kernels convolutions use on a GPU: deterministic ones, or the fastest."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Literal

import torch

Kernels = Literal["default", "deterministic", "fastest"]
"""``deterministic``: kernels that add in a fixed order. ``fastest``: kernels that were fastest
when tried on the first batch of every shape, which may differ the next time."""


def chosen_kernels(kernels: Kernels) -> AbstractContextManager[None]:
    """Context in which convolutions on a GPU use these kernels; those on a CPU are unaffected."""
    cudnn = torch.backends.cudnn
    choice: AbstractContextManager[None] = cudnn.flags(
        enabled=cudnn.enabled,
        benchmark=cudnn.benchmark if kernels == "default" else kernels == "fastest",
        deterministic=cudnn.deterministic if kernels == "default" else kernels == "deterministic",
        allow_tf32=cudnn.allow_tf32,
    )
    return choice
