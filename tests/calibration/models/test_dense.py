"""Gradients by hand are those of autograd."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calibration.models import FunctionalModel, build_model
from calibration.steady import FEW_CLASSES, cross_entropy_and_slope


def model_of(widths: tuple[int, ...], **options: object) -> FunctionalModel:
    torch.manual_seed(0)
    return FunctionalModel(build_model("mlp", {"widths": widths} | options, (3, 2), 4).double())


def drawn(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("widths", [(), (7,), (7, 5)], ids=str)
def test_gradients_by_hand_are_autograds_also_of_features(widths: tuple[int, ...]) -> None:
    model = model_of(widths)
    assert model.dense is not None
    parameters, inputs, labels = drawn(3, model.size), drawn(3, 20, 3, 2), torch.arange(20) % 4

    def loss(vector: Tensor, rows: Tensor) -> Tensor:
        output, _ = model.apply(vector, {}, rows, training=True)
        return F.cross_entropy(output.logits, labels) + output.features.square().mean()

    pairs = zip(parameters, inputs, strict=True)
    expected = torch.stack([torch.func.grad(loss)(*one) for one in pairs])
    stacked = model.dense.forward(parameters, inputs)
    _, slope = cross_entropy_and_slope(stacked.logits, labels.expand(3, -1))
    size = stacked.features[0].numel()
    found = stacked.backward(slope, 2 * stacked.features / size)
    torch.testing.assert_close(found, expected)
    for place in range(3):
        one = model.dense.forward(parameters[place], inputs[place])
        _, slope = cross_entropy_and_slope(one.logits, labels)
        alone = one.backward(slope, 2 * one.features / size)
        torch.testing.assert_close(alone, expected[place])


@pytest.mark.parametrize("classes", [2, 4, FEW_CLASSES, FEW_CLASSES + 1, 200])
def test_the_loss_by_hand_is_the_cross_entropy(classes: int) -> None:
    logits, labels = drawn(5, 30, classes), torch.arange(150).view(5, 30) % classes
    values, slopes = cross_entropy_and_slope(logits, labels)
    for found, slope, one, truth in zip(values, slopes, logits, labels, strict=True):
        expected, value = torch.func.grad_and_value(F.cross_entropy)(one, truth)
        torch.testing.assert_close((found, slope), (value, expected))


@pytest.mark.parametrize("options", [{"activation": "tanh"}, {"dropout": 0.5}], ids=str)
def test_other_networks_are_left_to_autograd(options: dict[str, object]) -> None:
    assert model_of((7,), **options).dense is None


def test_a_frozen_layer_leaves_the_network_to_autograd() -> None:
    network = build_model("mlp", {"widths": (7,)}, (6,), 4)
    next(
        layer for layer in network.modules() if isinstance(layer, nn.Linear)
    ).weight.requires_grad_(False)
    assert FunctionalModel(network).dense is None


@pytest.mark.parametrize("widths", [(), (7,), (7, 5)], ids=str)
def test_a_gradient_moves_along_a_direction_as_its_jvp_does(widths: tuple[int, ...]) -> None:
    model = model_of(widths)
    assert model.dense is not None
    inputs, weights = drawn(3, 20, 3, 2), drawn(3, 20, 4)
    parameters, direction = drawn(3, model.size), drawn(3, model.size + 1)[:, 1:]

    def logits(vector: Tensor, rows: Tensor) -> Tensor:
        return model.apply(vector, {}, rows, training=True)[0].logits

    def loss(vector: Tensor, rows: Tensor, weight: Tensor) -> Tensor:
        return (weight * logits(vector, rows).square()).sum()

    def expected(place: int) -> tuple[Tensor, Tensor]:
        one = parameters[place], direction[place]
        _, along = torch.func.jvp(lambda v: logits(v, inputs[place]), one[:1], one[1:])
        slope = torch.func.grad(lambda v: loss(v, inputs[place], weights[place]))
        return along, torch.func.jvp(slope, one[:1], one[1:])[1]

    def found(place: int | slice) -> tuple[Tensor, Tensor]:
        assert model.dense is not None
        made = model.dense.forward(parameters[place], inputs[place])
        bars = made.bars(2 * weights[place] * made.logits)
        tangent = made.tangent(direction[place])
        turned = 2 * weights[place] * tangent.logits
        return tangent.logits, made.gradient_along(bars, tangent, turned)

    together = found(slice(None))
    for place in range(3):
        torch.testing.assert_close(found(place), expected(place))
        torch.testing.assert_close(tuple(part[place] for part in together), expected(place))
