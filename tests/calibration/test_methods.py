"""The losses against independent references, their derivatives and their hyperparameters."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from calibration.hyperparameters import SettingError
from calibration.methods import METHODS, LossMethod, make_method
from calibration.models import Output
from calibration.registry import UnknownNameError

LOSS_METHODS = [n for n in METHODS if issubclass(METHODS[n], LossMethod)]


def loss_of(name: str, logits: Tensor, labels: Tensor, **hyperparameters: float) -> Tensor:
    method = make_method(name, hyperparameters)
    assert isinstance(method, LossMethod)
    numbers = method.numbers(dtype=logits.dtype, device=logits.device)
    return method.loss(Output(logits, logits), labels, numbers)


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(17, 4, generator=generator, dtype=torch.double)
    return logits, torch.randint(0, 4, (17,), generator=generator)


def test_standard_is_cross_entropy(batch: tuple[Tensor, Tensor]) -> None:
    torch.testing.assert_close(loss_of("standard", *batch), F.cross_entropy(*batch))


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.3])
def test_label_smoothing_agrees_with_torch(batch: tuple[Tensor, Tensor], epsilon: float) -> None:
    ours = loss_of("label_smoothing", *batch, epsilon=epsilon)
    torch.testing.assert_close(ours, F.cross_entropy(*batch, label_smoothing=epsilon))


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0, 5.0])
def test_focal_agrees_with_its_formula(batch: tuple[Tensor, Tensor], gamma: float) -> None:
    logits, labels = batch
    p = logits.softmax(-1)[torch.arange(17), labels]
    expected = (-((1 - p) ** gamma) * p.log()).mean()
    torch.testing.assert_close(loss_of("focal", logits, labels, gamma=gamma), expected)


@pytest.mark.parametrize("name", LOSS_METHODS)
def test_losses_are_twice_differentiable(name: str, batch: tuple[Tensor, Tensor]) -> None:
    logits, labels = batch

    def loss(x: Tensor) -> Tensor:
        return loss_of(name, x, labels)

    assert torch.autograd.gradcheck(loss, (logits.requires_grad_(),))
    assert torch.autograd.gradgradcheck(loss, (logits,))


@pytest.mark.parametrize("name", LOSS_METHODS)
@pytest.mark.parametrize("scale", [0.0, 40.0, 1e4])
def test_saturated_logits_give_finite_losses_and_gradients(name: str, scale: float) -> None:
    logits = (scale * torch.eye(3)).requires_grad_()
    for labels in (torch.tensor([0, 1, 2]), torch.tensor([1, 2, 0])):
        loss = loss_of(name, logits, labels)
        (gradient,) = torch.autograd.grad(loss, logits)
        assert bool(loss.isfinite())
        assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0])
def test_focal_gradient_is_finite_where_the_answer_is_certain(gamma: float) -> None:
    logits = torch.tensor([[60.0, 0.0]]).requires_grad_()
    loss = loss_of("focal", logits, torch.tensor([0]), gamma=gamma)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert bool(gradient.isfinite().all())


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("focal", {"gamma": -1}, ["focal", "gamma", "-1", "greater than or equal to 0"]),
        ("focal", {"gama": 1}, ["gama", "did you mean 'gamma'"]),
        ("label_smoothing", {"epsilon": "much"}, ["epsilon", "much", "number"]),
        ("standard", {"lr": 0}, ["lr", "0", "greater than 0"]),
        ("standard", {"lr": float("nan")}, ["lr", "nan", "finite"]),
    ],
)
def test_bad_hyperparameters_are_named(name: str, values: dict, words: list[str]) -> None:
    with pytest.raises(SettingError) as error:
        make_method(name, values)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_an_unknown_method_brings_the_nearest_name() -> None:
    with pytest.raises(UnknownNameError, match="unknown method 'focall'; did you mean 'focal'"):
        make_method("focall", {})


def test_a_method_can_be_named_by_import_path() -> None:
    assert isinstance(make_method("calibration.methods.focal:Focal", {}), METHODS["focal"])
    with pytest.raises(UnknownNameError, match=r"cannot import method 'no\.such:Thing'"):
        make_method("no.such:Thing", {})
