"""cuDNN's kernels are chosen for a while; images in another order of memory train the same."""

from __future__ import annotations

import pytest
import torch

from calibration.data import load_dataset
from calibration.data.protocol import PROTOCOLS
from calibration.kernels import Kernels, chosen_kernels
from calibration.methods import make_method
from calibration.training import TrainingRun
from calibration.training_config import TrainingConfig


@pytest.mark.parametrize(
    ("kernels", "benchmark", "deterministic"),
    [("deterministic", False, True), ("fastest", True, False)],
)
def test_kernels_are_chosen_and_given_back(
    kernels: Kernels, benchmark: bool, deterministic: bool
) -> None:
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, cudnn.enabled
    with chosen_kernels(kernels):
        assert (cudnn.benchmark, cudnn.deterministic) == (benchmark, deterministic)
        with chosen_kernels("default"):
            assert (cudnn.benchmark, cudnn.deterministic) == (benchmark, deterministic)
    assert (cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, cudnn.enabled) == before


def test_channels_last_reaches_the_network_and_changes_no_more_than_rounding() -> None:
    seen: list[bool] = []

    def trained(last: bool) -> TrainingRun:
        splits = load_dataset("digits", {}).split(PROTOCOLS["honest"], 0, held_out=False)
        config = TrainingConfig(epochs=1, batch_size=512, channels_last=last)
        method = make_method("standard", {"lr": 0.01, "weight_decay": 0.0})
        network = {"model": "small_cnn", "model_options": {}, "classes": 10}
        run = TrainingRun(method, splits, **network, config=config, seed=1)
        batch = run._prepare(run.train.inputs[:4])
        seen.append(batch.is_contiguous(memory_format=torch.channels_last))
        run.run_epoch()
        return run

    plain, last = (trained(choice) for choice in (False, True))
    assert seen[1]
    torch.testing.assert_close(last.state.parameters, plain.state.parameters, rtol=1e-3, atol=1e-4)
