"""Denormal numbers as zero: with them processors compute many times more slowly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Let this thread take what is below the normal range (1.2e-38 in float32) for zero.

    Squared gradients of a network that has fitted its rows are soon that small. If torch computes
    with several threads, nothing changes: the setting would not reach the others. So results may
    depend on their number, which is part of a trial's key anyway.
    """
    if torch.get_num_threads() > 1 or _flushing():
        yield
        return
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def _flushing() -> bool:
    return not bool(torch.tensor(torch.finfo(torch.float32).tiny) / 2)
