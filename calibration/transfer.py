"""Asynchronous transfer of data to a GPU."""

from __future__ import annotations

import math

import torch
from torch import Tensor

RESIDENT_SHARE = 1 / 3
"""The share of a process's GPU memory for rows that stay there; the rest is for the network.
``gpu: auto`` reserves as much in addition to its estimate."""


def pinned(values: Tensor, device: torch.device) -> Tensor:
    """The values in page-locked host memory, from which a GPU can fetch them itself."""
    return values if device.type == "cpu" else values.pin_memory()


def sent(values: Tensor, device: torch.device) -> Tensor:
    """Send host values to a device without waiting; operations queued there later see them."""
    return pinned(values, device).to(device, non_blocking=True)


def room_for_rows(device: torch.device) -> float:
    """How many bytes of rows may reside on a device while a network is trained there."""
    if device.type != "cuda":
        return math.inf
    share = torch.cuda.get_per_process_memory_fraction(device)
    return RESIDENT_SHARE * share * torch.cuda.get_device_properties(device).total_memory
