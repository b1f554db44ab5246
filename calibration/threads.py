"""The number of threads, which affects the last bits of a sum that they share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Use ``count`` threads in torch and numpy's linear algebra; restore both on exit."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with threadpool_limits(count, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)
