"""bfloat16 on processors that announce matrix instructions which they cannot carry out."""

from __future__ import annotations

import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch

_PRODUCT = "import torch; x = torch.ones(64, 128, dtype=torch.bfloat16); x @ x.T"


def bfloat16_kernels(device: torch.device) -> AbstractContextManager[None]:
    """While this lasts, products in bfloat16 take kernels that work on the device.

    Some virtual machines announce AMX and end a process that uses it with SIGILL. There,
    oneDNN, the only one to use AMX, is left out.
    """
    if device.type != "cpu" or _amx_works():
        return nullcontext()
    without: AbstractContextManager[None] = torch.backends.mkldnn.flags(enabled=False)
    return without


@cache
def _amx_works() -> bool:
    """Tried in a process of its own, where AMX is announced: nothing survives the signal."""
    if not torch.cpu.get_capabilities().get("amx_tile"):
        return True
    tried = subprocess.run([sys.executable, "-c", _PRODUCT], capture_output=True, check=False)
    return tried.returncode >= 0  # below 0: ended by a signal
