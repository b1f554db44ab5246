"""bfloat16 on processors that advertise matrix instructions they cannot execute."""

from __future__ import annotations

import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch

_PRODUCT = "import torch; x = torch.ones(64, 128, dtype=torch.bfloat16); x @ x.T"


def bfloat16_kernels(device: torch.device) -> AbstractContextManager[None]:
    """Context in which bfloat16 products use only kernels that work on the device.

    Some virtual machines advertise AMX but kill a process that uses it with SIGILL. There,
    oneDNN, the only library to use AMX, is disabled.
    """
    if device.type != "cpu" or _amx_works():
        return nullcontext()
    without: AbstractContextManager[None] = torch.backends.mkldnn.flags(enabled=False)
    return without


@cache
def _amx_works() -> bool:
    """If AMX is advertised, try it in a subprocess: the signal kills the process."""
    if not torch.cpu.get_capabilities().get("amx_tile"):
        return True
    tried = subprocess.run([sys.executable, "-c", _PRODUCT], capture_output=True, check=False)
    return tried.returncode >= 0  # negative: killed by a signal
