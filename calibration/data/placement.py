"""Where training keeps its rows: on its device if there is room, else on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from calibration.data.dataset import Part
from calibration.data.mapped import kept_on, sent_by_batch
from calibration.transfer import room_for_rows


def placed(parts: Sequence[Part], device: torch.device) -> list[Part]:
    """Parts to be used together: on the device if they fit, else sent there batch by batch."""
    size = sum(part.inputs.numel() * part.inputs.dtype.itemsize for part in parts)
    if device.type == "cpu":  # rows in a file stay there, others are already in memory
        move: Callable[[Tensor, torch.device], Tensor] = Tensor.to
    else:
        move = kept_on if size <= room_for_rows(device) else sent_by_batch
    moved = []
    for part in parts:
        # Rows are drawn by weight on the host, so that nothing waits for the device.
        known = part._replace(inputs=part.labels, weights=None).to(device)
        moved.append(known._replace(inputs=move(part.inputs, device), weights=part.weights))
    return moved
