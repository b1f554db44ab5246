"""A frozen piece of work by which the speed of a machine is told from that of our code.

It does what training does (small matrix products, convolutions, their gradients, Python
between them, sorting), always the same amount, in one thread, and calls nothing of this
project. Nothing in this file may change without a higher ``VERSION``: times of different
versions are never compared.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional as F

VERSION = 1
STEPS = 6


class ReferenceWork:
    """The work on one device, its inputs drawn once; ``__call__`` does it, about 10 ms of CPU."""

    def __init__(self, device: str = "cpu") -> None:
        generator = torch.Generator().manual_seed(0)

        def drawn(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator).to(device)

        self._rows, self._pictures = drawn(256, 64), drawn(8, 8, 14, 14)
        self._labels = torch.arange(256, device=device) % 10
        self._weights = [drawn(64, 64), drawn(64, 64), drawn(64, 10), drawn(8, 8, 3, 3)]
        for weights in self._weights:
            weights.requires_grad_()
        self._scores = np.random.default_rng(0).random(5_000)

    def __call__(self) -> None:
        """Do it once."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with torch.enable_grad():
                for _ in range(STEPS):
                    self._step()
        finally:
            torch.set_num_threads(threads)

    def _step(self) -> None:
        first, second, last, kernels = self._weights
        hidden = ((self._rows @ first / 8).relu() @ second / 8).relu()
        loss = F.cross_entropy(hidden @ last / 8, self._labels)
        loss = loss + F.conv2d(self._pictures, kernels, padding=1).relu().mean()
        moments = [torch.zeros_like(weights) for weights in self._weights]
        for moment, gradient in zip(moments, torch.autograd.grad(loss, self._weights), strict=True):
            moment.mul_(0.9).add_(gradient, alpha=0.1).sqrt_()
        np.sort(self._scores * float(loss.detach()))
