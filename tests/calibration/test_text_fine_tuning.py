"""Fine-tuning of text encoders: tokens in, the whole network trained; torch.optim is the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn import functional as F

from calibration.cohort import Cohort
from calibration.data import FixedDataset, Part, Splits
from calibration.data.columns import Column
from calibration.data.protocol import PROTOCOLS
from calibration.data.text_inputs import encode_texts
from calibration.methods import make_method
from calibration.models import build_model, encoder_of
from calibration.training import TrainingRun
from calibration.training_config import TrainingConfig
from tests.pretrained import reviews, text_encoder

NAME = "hf:tiny"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("encoder")
    text_encoder(directory)
    return directory


@pytest.fixture(scope="module")
def options(directory: Path) -> dict[str, Any]:
    return {"weights": str(directory), "frozen": False}


@pytest.fixture(scope="module")
def splits() -> Splits:
    frame = reviews(160)
    labels = torch.from_numpy((frame["label"] == "good").to_numpy().astype(np.int64))
    part = Part(encode_texts(frame["review"]), labels)
    data = FixedDataset("t", "text", part, ("bad", "good"), columns=(Column("review", "text"),))
    return data.split(PROTOCOLS["honest"], 0, held_out=True)


def started(
    options: dict[str, Any],
    splits: Splits,
    method: str = "standard",
    config: dict[str, Any] | None = None,
    **hyperparameters: Any,
) -> TrainingRun:
    return TrainingRun(
        make_method(method, {"lr": 0.02} | hyperparameters),
        splits,
        model=NAME,
        model_options=options,
        classes=2,
        config=TrainingConfig(**({"epochs": 3, "batch_size": 16} | (config or {}))),
        seed=0,
    )


def trained(run: TrainingRun) -> TrainingRun:
    while not run.done:
        run.run_epoch()
    return run


def without_dropout(directory: Path, into: Path) -> dict[str, Any]:
    from transformers import AutoModel, AutoTokenizer

    network = AutoModel.from_pretrained(directory)
    network.config.hidden_dropout_prob = network.config.attention_probs_dropout_prob = 0.0
    network.save_pretrained(into)
    AutoTokenizer.from_pretrained(directory).save_pretrained(into)
    return {"weights": str(into), "frozen": False}


def test_the_word_that_decides_is_learned(options: dict[str, Any], splits: Splits) -> None:
    run = trained(started(options, splits, backbone_lr=1.0, lr=0.01, config={"epochs": 8}))
    right = run.predict(splits.validation).argmax(1) == splits.validation.labels
    assert right.float().mean() > 0.9, "one word decides"


def test_the_network_before_training_gives_the_frozen_embeddings(
    options: dict[str, Any], splits: Splits
) -> None:
    run, encoder = started(options, splits), encoder_of(NAME, options)
    views = run.learner.model.unflatten(run.state.parameters) | run.state.buffers
    assert not any("pooler" in name for name in run.learner.model.names), "nothing depends on it"
    vectors = encoder.embed(splits.validation.inputs, batch_size=64)
    expected = F.linear(vectors, views["head.head.weight"], views["head.head.bias"])
    found = run.predict(splits.validation)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_padding_changes_no_text(options: dict[str, Any]) -> None:
    encoder = encoder_of(NAME, options)
    texts = encode_texts(pd.Series(["good film", "it was not very bad food and the film was bad"]))
    with torch.no_grad():
        both = encoder.trainable().eval()(encoder.prepared(texts))
        first = encoder.trainable().eval()(encoder.prepared(texts[:1]))
    assert encoder.prepared(texts[:1]).shape[2] < encoder.prepared(texts).shape[2]
    torch.testing.assert_close(both[:1], first, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("optimiser", ["adamw", "sgd"])
def test_steps_are_those_of_torch_optim_with_two_groups(
    optimiser: str, directory: Path, tmp_path: Path, splits: Splits
) -> None:
    """Full batches; the first of three epochs leaves the network alone."""
    options, lr, relative = without_dropout(directory, tmp_path), 0.003, 0.2
    config = {"batch_size": "full", "optimiser": optimiser}
    rates = {"lr": lr, "backbone_lr": relative, "freeze_epochs": 1, "weight_decay": 0.01}
    run = started(options, splits, config=config, **rates)
    tokens = encoder_of(NAME, options).prepared(splits.train.inputs)
    module: Any = build_model(NAME, options, tuple(tokens.shape[1:]), 2)
    before = run.learner.model.unflatten(run.state.parameters)
    module.load_state_dict(before | run.state.buffers, strict=False)
    tuned = [p for p in module.backbone.parameters() if p.requires_grad]
    groups = [{"params": tuned, "lr": relative * lr}, {"params": module.head.parameters()}]
    if optimiser == "sgd":
        theirs: Any = torch.optim.SGD(groups, lr=lr, momentum=0.9, weight_decay=0.01)
    else:
        theirs = torch.optim.AdamW(groups, lr=lr, weight_decay=0.01)
    module.train()
    for epoch in range(3):
        for parameter in tuned:
            parameter.requires_grad_(epoch > 0)
        theirs.zero_grad(set_to_none=True)
        F.cross_entropy(module(tokens).logits, splits.train.labels).backward()
        theirs.step()
        run.run_epoch()
        found = run.learner.model.unflatten(run.state.parameters)
        expected = dict(module.named_parameters())
        for group in ("backbone.", "head."):
            names = [name for name in before if name.startswith(group)]
            ours, those = (
                torch.cat([(values[name] - before[name]).flatten() for name in names])
                for values in (found, expected)
            )
            assert (ours - those).norm() <= 0.01 * those.norm(), (group, epoch)


@pytest.mark.parametrize("method", ["standard", "bo4sc"])
def test_frozen_epochs_leave_the_network_to_the_bit(
    method: str, options: dict[str, Any], splits: Splits
) -> None:
    run = started(options, splits, method, freeze_epochs=2, weight_decay=0.01)
    size, before = run.learner.model.backbone, run.state.parameters
    for _ in range(2):
        run.run_epoch()
    assert torch.equal(run.state.parameters[:size], before[:size])
    assert not torch.equal(run.state.parameters[size:], before[size:])
    run.run_epoch()
    assert not torch.equal(run.state.parameters[:size], before[:size])


def test_a_resumed_fine_tuning_is_the_same_to_the_bit(
    options: dict[str, Any], splits: Splits
) -> None:
    """Dropout included, before and after the network is thawed."""
    given = (options, splits, "fl_gamma_sece", {"schedule": "cosine"})
    whole = trained(started(*given, freeze_epochs=1))
    for epochs in (1, 2):
        first = started(*given, freeze_epochs=1)
        for _ in range(epochs):
            first.run_epoch()
        second = started(*given, freeze_epochs=1)
        second.load_state_dict(first.state_dict())
        assert torch.equal(trained(second).state.parameters, whole.state.parameters)
        assert second.curve == whole.curve


def test_a_cohort_gives_the_same_bits(options: dict[str, Any], splits: Splits) -> None:
    """Members draw batches of other lengths and dropout of their own: they are trained in turn."""
    runs = [started(options, splits, config={"epochs": 1}, lr=lr) for lr in (0.01, 0.02)]
    cohort = Cohort(runs)
    cohort.run_epoch()
    assert not cohort.failures
    for run, lr in zip(runs, (0.01, 0.02), strict=True):
        alone = trained(started(options, splits, config={"epochs": 1}, lr=lr))
        assert torch.equal(run.state.parameters, alone.state.parameters)
