"""A fixed piece of work by which nights on busier or other machines can be compared in cost.

It does what training does (small matrix products, convolutions, their gradients, sorting), in
one thread, always the same amount. How much longer it takes tonight than it did at the
baseline is how much longer training may take.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from torch.nn import functional as F

from calibration.threads import threads

STEPS = 150
REPEATS = 3


def reference_seconds() -> list[float]:
    """Seconds that the work took, several times over; half a second each or so."""
    with threads(1):
        return [_timed() for _ in range(REPEATS)]


def _timed() -> float:
    draws = np.random.default_rng(0)
    generator = torch.Generator().manual_seed(0)
    begin = time.perf_counter()
    rows = torch.randn(700, 64, generator=generator)
    weights = torch.randn(64, 64, generator=generator, requires_grad=True)
    pictures = torch.randn(16, 8, 28, 28, generator=generator)
    kernels = torch.randn(16, 8, 3, 3, generator=generator, requires_grad=True)
    for _ in range(STEPS):
        loss = (rows @ weights).relu().logsumexp(1).mean() + F.conv2d(pictures, kernels).var()
        torch.autograd.grad(loss, (weights, kernels))
        np.sort(draws.random(20_000))
    return time.perf_counter() - begin
