"""Data on their way to a GPU: what is sent, the program does not wait for."""

from __future__ import annotations

import math

import torch
from torch import Tensor

RESIDENT_SHARE = 1 / 3
"""Of the GPU memory that a process may take, for rows that stay there: the rest is the network's.
``gpu: auto`` leaves as much beside what it estimates."""


def pinned(values: Tensor, device: torch.device) -> Tensor:
    """The values where a GPU can fetch them by itself: in locked pages of the host's memory."""
    return values if device.type == "cpu" else values.pin_memory()


def sent(values: Tensor, device: torch.device) -> Tensor:
    """Values of the host on a device, for whatever is computed there from now on."""
    return pinned(values, device).to(device, non_blocking=True)


def room_for_rows(device: torch.device) -> float:
    """How many bytes of rows may stay on a device while a network is trained there."""
    if device.type != "cuda":
        return math.inf
    share = torch.cuda.get_per_process_memory_fraction(device)
    return RESIDENT_SHARE * share * torch.cuda.get_device_properties(device).total_memory
