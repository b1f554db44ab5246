from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

Draw = Callable[..., tuple[Tensor, Tensor]]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def draw() -> Draw:
    """Make logits (n, classes) that are often right, too sure from ``scale`` 1 on, and labels."""

    def make(
        n: int = 40, classes: int = 4, *, seed: int = 0, scale: float = 2.0
    ) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        labels = torch.randint(classes, (n,), generator=generator)
        logits = torch.randn(n, classes, generator=generator, dtype=torch.float64)
        logits[torch.arange(n), labels] += 1.0
        return scale * logits, labels

    return make
