"""Independent random streams from one seed.

Every use of randomness names its purpose (``"initialisation"``, ``"epoch", 7``), so the
stream of one use does not depend on how much another has drawn, and resuming requires no
saved state: epoch 7 draws the same numbers whether or not the process is new.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor
from torch._C._functorch import is_batchedtensor


def derive_seed(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed for one purpose, independent of those of other purposes and seeds."""
    text = "/".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


@contextmanager
def seeded(seed: int, *purpose: str | int) -> Iterator[torch.Generator]:
    """Seed torch's global generators for the block, and restore the caller's state after it.

    Modules such as Dropout draw from the global generator of their device; explicit draws
    use the CPU generator that is yielded.
    """
    value = derive_seed(seed, *purpose)
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    before = torch.default_generator.get_state()
    before_on = {device: torch.cuda.get_rng_state(device) for device in devices}
    # Not torch.manual_seed: without CUDA it queues a call, with its stack trace, every time.
    torch.default_generator.manual_seed(value)
    if before_on:
        torch.cuda.manual_seed_all(value)
    try:
        yield torch.Generator().manual_seed(value)
    finally:
        torch.default_generator.set_state(before)
        for device, state in before_on.items():
            torch.cuda.set_rng_state(state, device)


def replayed(number: Tensor, *purpose: str | int) -> AbstractContextManager[object]:
    """``seeded`` by a number drawn on the CPU, for passes that must share their dropout masks.

    Nothing is seeded in a cohort, which rejects networks that draw random numbers.
    """
    if is_batchedtensor(number):
        return nullcontext()
    return seeded(int(number.numpy()), *purpose)
