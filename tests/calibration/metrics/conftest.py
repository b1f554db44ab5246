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
    """Make probabilities (n, classes) like an over-confident network's, and labels."""

    def make(
        n: int = 1000,
        classes: int = 5,
        *,
        seed: int = 0,
        sharpness: float = 2.0,
        dtype: torch.dtype = torch.float64,
    ) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        labels = torch.randint(classes, (n,), generator=generator)
        logits = torch.randn(n, classes, generator=generator, dtype=torch.float64)
        logits[torch.arange(n), labels] += 1.5
        return (logits * sharpness).softmax(-1).to(dtype), labels

    return make
