"""Fine-tuning: a backbone moves at its own rate, or not at all; torch.optim is the oracle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from calibration.cohort import Cohort, company
from calibration.data import FixedDataset, Part, Splits
from calibration.data.protocol import PROTOCOLS
from calibration.data.transforms import Standardise
from calibration.methods import make_method
from calibration.models import build_model, encoder_of
from calibration.models.backbones import backbone
from calibration.models.backbones.huggingface import HuggingFaceBackbone
from calibration.training import TrainingRun
from calibration.training_config import TrainingConfig
from tests.pretrained import TIMM, timm_weights

NAME, CLASSES, SIZE = f"timm:{TIMM}", 3, 16


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("weights") / "weights.pt"
    timm_weights(path)
    return {"weights": str(path), "size": SIZE, "frozen": False}


@pytest.fixture(scope="module")
def splits() -> Splits:
    drawn = torch.Generator().manual_seed(0)
    labels = torch.arange(120) % CLASSES
    images = torch.randint(0, 160, (120, 1, 8, 8), generator=drawn, dtype=torch.uint8)
    images += (40 * labels)[:, None, None, None].to(torch.uint8)
    data = FixedDataset("i", "image", Part(images, labels), ("a", "b", "c"))
    return data.split(PROTOCOLS["honest"], 0, held_out=True)


def started(
    options: dict[str, Any],
    splits: Splits,
    method: str = "standard",
    config: dict[str, Any] | None = None,
    model: str = NAME,
    **hyperparameters: Any,
) -> TrainingRun:
    return TrainingRun(
        make_method(method, {"lr": 0.02} | hyperparameters),
        splits,
        model=model,
        model_options=options,
        classes=CLASSES,
        config=TrainingConfig(**({"epochs": 2, "batch_size": 16} | (config or {}))),
        seed=0,
    )


def trained(run: TrainingRun) -> TrainingRun:
    while not run.done:
        run.run_epoch()
    return run


def backbone_of(run: TrainingRun) -> tuple[Tensor, dict[str, Tensor]]:
    size = run.learner.model.backbone
    return run.state.parameters[:size], run.state.buffers


def assert_untouched(run: TrainingRun, before: tuple[Tensor, dict[str, Tensor]]) -> None:
    parameters, buffers = backbone_of(run)
    assert torch.equal(parameters, before[0])
    assert all(torch.equal(buffers[name], value) for name, value in before[1].items())
    assert before[1], "a network with batch normalisation"


def test_the_first_parameters_are_the_weights_of_the_file(
    options: dict[str, Any], splits: Splits
) -> None:
    run = started(options, splits)
    views = run.learner.model.unflatten(run.state.parameters) | run.state.buffers
    given = torch.load(options["weights"], weights_only=True)
    for name in encoder_of(NAME, options).network.state_dict():
        assert torch.equal(views[f"backbone.{name}"], given[name])
    assert run.learner.model.head == ("head.head.weight", "head.head.bias")
    assert run.learner.model.size - run.learner.model.backbone == 96 * CLASSES + CLASSES


def test_at_the_rate_0_it_is_a_head_on_a_fixed_backbone(
    options: dict[str, Any], splits: Splits
) -> None:
    run = started(options, splits, backbone_lr=0.0, weight_decay=0.01)
    before = backbone_of(run)
    trained(run)
    assert_untouched(run, before)

    encoder = encoder_of(NAME, options)

    def embedded(part: Part | None) -> Part | None:
        return part and part._replace(inputs=encoder.embed(part.inputs, batch_size=64))

    parts = {name: embedded(getattr(splits, name)) for name in ("train", "validation")}
    unchanged = Standardise(torch.zeros(96), torch.ones(96))
    seen = replace(splits, **parts, meta_validation=None, transform=unchanged)
    head = trained(started({"widths": []}, seen, model="mlp", weight_decay=0.01))
    # The same rows in batches of other sizes: rounded otherwise in the last bits.
    found = run.state.parameters[run.learner.model.backbone :]
    torch.testing.assert_close(found, head.state.parameters, rtol=1e-3, atol=1e-4)
    assert not torch.equal(
        head.state.parameters, started({"widths": []}, seen, model="mlp").state[0]
    )
    assert run.curve[-1]["validation/nll"] == pytest.approx(
        head.curve[-1]["validation/nll"], rel=1e-3
    )


@pytest.mark.parametrize("method", ["standard", "bo4sc"])
def test_frozen_epochs_leave_the_backbone_to_the_bit(
    method: str, options: dict[str, Any], splits: Splits
) -> None:
    around = {"clip_norm": 1.0, "ema_decay": 0.5, "epochs": 3}
    run = started(options, splits, method, around, freeze_epochs=2, weight_decay=0.01)
    before, head = backbone_of(run), run.state.parameters[run.learner.model.backbone :]
    for _ in range(2):
        run.run_epoch()
    assert_untouched(run, before)
    assert torch.equal(run.evaluated.parameters[: run.learner.model.backbone], before[0])
    assert run.state.optimiser["backbone.step"] == 0 < run.state.optimiser["head.step"]
    assert not torch.equal(run.state.parameters[run.learner.model.backbone :], head)
    run.run_epoch()
    after, buffers = backbone_of(run)
    assert not torch.equal(after, before[0])
    name = next(name for name in buffers if name.endswith("running_mean"))
    assert not torch.equal(buffers[name], before[1][name])


OPTIMISERS = {
    "adam": lambda groups: torch.optim.Adam(groups, weight_decay=0.01),
    "adamw": lambda groups: torch.optim.AdamW(groups, weight_decay=0.01),
    "sgd": lambda groups: torch.optim.SGD(groups, momentum=0.9, weight_decay=0.01),
}


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_steps_are_those_of_torch_optim_with_two_groups(
    optimiser: str, options: dict[str, Any], splits: Splits
) -> None:
    """Full batches; the first of three epochs leaves the backbone alone."""
    lr, relative = 0.003, 0.2
    run = started(
        options,
        splits,
        config={"epochs": 3, "batch_size": "full", "optimiser": optimiser},
        lr=lr,
        weight_decay=0.01,
        backbone_lr=relative,
        freeze_epochs=1,
    )
    module: Any = build_model(NAME, options, (3, SIZE, SIZE), CLASSES)
    views = run.learner.model.unflatten(run.state.parameters)
    module.load_state_dict(views | run.state.buffers)
    images = encoder_of(NAME, options).prepared(splits.train.inputs)
    groups = [
        {"params": list(module.backbone.parameters()), "lr": relative * lr},
        {"params": list(module.head.parameters()), "lr": lr},
    ]
    theirs = OPTIMISERS[optimiser](groups)
    for epoch in range(3):
        module.train()
        if epoch == 0:
            module.backbone.eval()
        module.backbone.requires_grad_(epoch > 0)
        theirs.zero_grad(set_to_none=True)
        F.cross_entropy(module(images).logits, splits.train.labels).backward()
        theirs.step()
        run.run_epoch()
        found = run.learner.model.unflatten(run.state.parameters) | run.state.buffers
        assert_moved_alike(found, module.state_dict(), views)


def assert_moved_alike(
    found: dict[str, Tensor], expected: dict[str, Tensor], before: dict[str, Tensor]
) -> None:
    """Whether both groups have gone the same way, up to a hundredth of its length.

    Where a gradient is about 0, its sign, and with it Adam's first step, is a matter of rounding.
    """
    for group in ("backbone.", "head."):
        names = [name for name in before if name.startswith(group)]
        ours, theirs = (
            torch.cat([(values[name] - before[name]).flatten() for name in names])
            for values in (found, expected)
        )
        assert (ours - theirs).norm() <= 0.01 * theirs.norm(), group
    for name in found.keys() - before.keys():
        torch.testing.assert_close(found[name], expected[name], rtol=1e-3, atol=1e-4)


def test_a_resumed_fine_tuning_is_the_same_to_the_bit(
    options: dict[str, Any], splits: Splits
) -> None:
    config = {"epochs": 3, "augmentation": ("crop", "colour"), "schedule": "cosine"}
    given = (options, splits, "fl_gamma_sece", config)
    whole = trained(started(*given, freeze_epochs=1, lookahead="all"))
    for epochs in (1, 2):  # before and after it is thawed
        first = started(*given, freeze_epochs=1, lookahead="all")
        for _ in range(epochs):
            first.run_epoch()
        second = started(*given, freeze_epochs=1, lookahead="all")
        second.load_state_dict(first.state_dict())
        assert torch.equal(trained(second).state.parameters, whole.state.parameters)
        assert second.curve == whole.curve
        for name, value in whole.state.buffers.items():
            assert torch.equal(second.state.buffers[name], value)


def test_loading_the_weights_changes_no_draw(options: dict[str, Any], splits: Splits) -> None:
    backbone._encoder.cache_clear()
    first, second = started(options, splits), started(options, splits)
    assert torch.equal(first.state.parameters, second.state.parameters)


def test_a_cohort_gives_the_same_bits_and_has_one_rate(
    options: dict[str, Any], splits: Splits
) -> None:
    small = {"epochs": 1}
    runs = [started(options, splits, config=small, lr=lr) for lr in (0.01, 0.02)]
    assert company(runs[0]) == company(runs[1])
    assert company(runs[0]) != company(started(options, splits, config=small, backbone_lr=0.3))
    Cohort(runs).run_epoch()
    alone = [trained(started(options, splits, config=small, lr=lr)) for lr in (0.01, 0.02)]
    for one, other in zip(runs, alone, strict=True):
        assert torch.equal(one.state.parameters, other.state.parameters)


def test_windows_of_full_batches_end_with_the_frozen_epochs(
    options: dict[str, Any], splits: Splits
) -> None:
    config = {"epochs": 4, "batch_size": "full"}
    run = started(options, splits, "bo4sc", config, freeze_epochs=1, inner_steps=3)
    before = backbone_of(run)
    run.run_epoch()
    assert run.epoch == 1
    assert_untouched(run, before)
    run.run_epoch()
    assert run.epoch == 4
    assert not torch.equal(backbone_of(run)[0], before[0])


def test_what_cannot_be_tuned_is_refused(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:  # a family need not be
        patched.setattr(HuggingFaceBackbone, "tunable", False)
        with pytest.raises(ValueError, match="frozen: false is not possible with hf: networks"):
            build_model("hf:tiny", {"weights": str(tmp_path), "frozen": False}, (5,), 2)
    with pytest.raises(ValueError, match=r"nowhere.pt: there is no such file of weights"):
        build_model(NAME, options | {"weights": str(tmp_path / "nowhere.pt")}, (3, 16, 16), 2)
    state = torch.load(options["weights"], weights_only=True)
    torch.save(state | {"conv1.0.weight": torch.zeros(3, 3)}, tmp_path / "bad.pt")
    with pytest.raises(ValueError, match=r"bad.pt: conv1.0.weight has shape \(3, 3\), and in timm"):
        build_model(NAME, options | {"weights": str(tmp_path / "bad.pt")}, (3, 16, 16), 2)
    torch.save(state | {"conv1.0.weight": state["conv1.0.weight"] / 0}, tmp_path / "endless.pt")
    with pytest.raises(ValueError, match=r"its output is not finite; are the weights damaged"):
        build_model(NAME, options | {"weights": str(tmp_path / "endless.pt")}, (3, 16, 16), 2)
