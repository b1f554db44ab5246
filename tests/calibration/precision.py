"""What rounding may do to a result: tolerances that hold on every instruction set."""

from __future__ import annotations

import math

import torch


def rounding(terms: int, dtype: torch.dtype = torch.float32) -> float:
    """How far a mean of numbers in [0, 1] may be off after ``terms`` additions in ``dtype``.

    Every addition rounds by at most eps/2 of the sum. Errors that go either way add up like
    √terms, in whatever order an instruction set adds; beyond λ√terms they lie with a
    probability below 2 exp(−λ²/2), for λ = 6 less than one in ten million.
    """
    return 6 * math.sqrt(terms) * torch.finfo(dtype).eps / 2
