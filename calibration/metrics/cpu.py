"""Two operations that are several times faster in NumPy than in torch on a CPU."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def sort_values_(values: Tensor) -> Tensor:
    """Sort along the last dimension, in place on a CPU, without the indices torch adds."""
    if values.device.type == "cpu":
        values.numpy().sort(axis=-1)
        return values
    return values.sort(dim=-1).values


def positions_above(values: Tensor, threshold: float) -> Tensor:
    """Positions, ascending, of the elements of a flat tensor that exceed the threshold."""
    if values.device.type == "cpu" and values.dtype in (torch.float32, torch.float64):
        return torch.from_numpy(np.flatnonzero(values.numpy() > threshold))
    return (values > threshold).nonzero().squeeze(1)
