"""What a training would send to a GPU and wait for, counted without one.

Every operation passes through a dispatch mode: reading a number off a tensor makes the program
wait for the GPU, and a tensor that is made on the host and used on the device is sent there.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from calibration.data import PROTOCOLS, load_dataset
from calibration.methods import make_method
from calibration.training import TrainingRun
from calibration.training_config import TrainingConfig

ROW_BYTES = 64 * 4
WAITS = {"_local_scalar_dense", "equal", "nonzero", "masked_select", "is_nonzero", "item"}


class Waits(TorchDispatchMode):
    """Counts the operations whose result the program, not the device, must know."""

    count = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.count += function.overloadpacket.__name__ in WAITS
        return function(*args, **(kwargs or {}))


class Sent(TorchFunctionMode):
    """Adds up the bytes of what is moved to a device or back."""

    total = 0

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        moves = function is torch.Tensor.cpu or (
            function is torch.Tensor.to
            and any(isinstance(each, torch.device) for each in (*args, *(kwargs or {}).values()))
        )
        if moves:
            self.total += args[0].numel() * args[0].element_size()
        return function(*args, **(kwargs or {}))


def traffic(method: str, batch_size: int) -> tuple[int, int, int]:
    """Of one epoch after the first: batches, waits, bytes sent."""
    splits = load_dataset("digits", {}).split(PROTOCOLS["honest"], 0, held_out=True)
    chosen = make_method(method, {"lr": 0.01, "weight_decay": 0.0})
    config = TrainingConfig(epochs=3, batch_size=batch_size, evaluate_every=3)
    network = {"model": "mlp", "model_options": {"widths": [8]}, "classes": 10}
    run = TrainingRun(chosen, splits, **network, config=config, seed=1)
    run.run_epoch()
    with Waits() as waits, Sent() as sent:
        run.run_epoch()
    return -(-len(run.train.labels) // batch_size), waits.count, sent.total


@pytest.mark.parametrize("method", ["standard", "focal", "mixup", "multi_objective"])
def test_no_batch_waits_for_the_device_or_sends_data_to_it(method: str) -> None:
    few, waits_of_few, sent_by_few = traffic(method, 512)
    many, waits_of_many, sent_by_many = traffic(method, 64)
    assert many > 3 * few
    assert waits_of_many == waits_of_few, "a wait for every batch"
    # At most indices, of training and held-out rows; the rows themselves are there already.
    assert max(sent_by_few, sent_by_many) < ROW_BYTES * 64 * many / 5
