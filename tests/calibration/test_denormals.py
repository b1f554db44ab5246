"""Numbers below the normal range are zero while a network trains, and only then."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from calibration.cohort import Cohort
from calibration.denormals import flushed_denormals
from calibration.threads import threads
from calibration.training import TrainingRun
from tests.calibration.test_cohort import run_of

TINY = torch.finfo(torch.float32).tiny


def halved() -> float:
    return float(torch.tensor(TINY) / 2)


def test_denormal_numbers_are_zero_inside_and_numbers_outside() -> None:
    with threads(1):
        with flushed_denormals():
            assert halved() == 0
            with flushed_denormals():
                assert halved() == 0
            assert halved() == 0
        assert halved() == TINY / 2
        with pytest.raises(KeyError), flushed_denormals():
            raise KeyError
        assert halved() == TINY / 2


def test_several_threads_keep_them() -> None:
    with threads(2), flushed_denormals():
        assert halved() == TINY / 2


def certain() -> TrainingRun:
    """One row, and a network whose wrong class has a probability of e^-95: denormal."""
    run = run_of(0, own={"weight_decay": 0.0}, batch_size="full", epochs=1)
    run.train = run.train.take(slice(1))
    parameters = run.state.parameters.clone()
    *_, weight, bias = run.learner.model.unflatten(parameters).values()
    output, _ = run.learner.forward(parameters, {}, run.train.inputs, training=False)
    margin = output.logits[0, 0] - output.logits[0, 1]
    for part in (weight, bias):
        part *= 95 / margin.abs()
    run.train = run.train._replace(labels=torch.tensor([0 if margin > 0 else 1]))
    run.state = run.state._replace(parameters=parameters)
    return run


def denormal(values: Tensor) -> bool:
    return bool(((values != 0) & (values.abs() < TINY)).any())


def test_training_leaves_none_alone_or_in_a_cohort() -> None:
    with threads(1):
        alone, member, unflushed = certain(), certain(), certain()
        alone.run_epoch()
        Cohort([member, certain()]).run_epoch()
        TrainingRun.run_epoch.__wrapped__(unflushed)  # type: ignore[attr-defined]
    assert denormal(unflushed.state.optimiser["mean"])
    for run in (alone, member):
        assert not run.state.optimiser["mean"].any()
