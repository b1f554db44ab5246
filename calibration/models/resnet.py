"""Residual networks for small images (He et al. 2016, with a 3×3 stem)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from calibration.models.initialisation import he_normal
from calibration.models.model import MODELS, ModelOptions, image_shape
from calibration.models.output import Network, Output

_STAGE_CHANNELS = (64, 128, 256, 512)


@MODELS.register("resnet18")
class ResNet18(ModelOptions):
    """ResNet-18 with a 3×3 stem, for images of about 32×32 to 64×64 pixels."""

    def build(self, input_shape: tuple[int, ...], classes: int) -> Network:
        """A network with 11.2 million parameters at 10 classes."""
        channels, _, _ = image_shape(input_shape, "resnet18", 1)
        return _ResNet(_BasicBlock, (2, 2, 2, 2), channels, classes)


@MODELS.register("resnet34")
class ResNet34(ModelOptions):
    """ResNet-34 with a 3×3 stem, for images of about 32×32 to 64×64 pixels."""

    def build(self, input_shape: tuple[int, ...], classes: int) -> Network:
        """A network with 21.3 million parameters at 10 classes."""
        channels, _, _ = image_shape(input_shape, "resnet34", 1)
        return _ResNet(_BasicBlock, (3, 4, 6, 3), channels, classes)


@MODELS.register("resnet50")
class ResNet50(ModelOptions):
    """ResNet-50 with a 3×3 stem, for images of about 32×32 to 64×64 pixels."""

    def build(self, input_shape: tuple[int, ...], classes: int) -> Network:
        """A network with 23.5 million parameters at 10 classes."""
        channels, _, _ = image_shape(input_shape, "resnet50", 1)
        return _ResNet(_Bottleneck, (3, 4, 6, 3), channels, classes)


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
    )


class _Block(nn.Module):
    """``relu(residual(x) + shortcut(x))``; a projection where the shapes differ (option B)."""

    expansion: int

    def __init__(self, residual: nn.Module, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.residual = residual
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = _convolution(inputs, outputs, 1, stride)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.relu(self.residual(inputs) + self.shortcut(inputs))


class _BasicBlock(_Block):
    expansion = 1

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        residual = nn.Sequential(
            _convolution(inputs, channels, 3, stride),
            nn.ReLU(),
            _convolution(channels, channels, 3),
        )
        super().__init__(residual, inputs, channels, stride)


class _Bottleneck(_Block):
    expansion = 4

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        outputs = self.expansion * channels
        residual = nn.Sequential(
            _convolution(inputs, channels, 1),
            nn.ReLU(),
            _convolution(channels, channels, 3, stride),
            nn.ReLU(),
            _convolution(channels, outputs, 1),
        )
        super().__init__(residual, inputs, outputs, stride)


class _ResNet(Network):
    def __init__(
        self,
        block: type[_BasicBlock] | type[_Bottleneck],
        blocks_per_stage: tuple[int, ...],
        inputs: int,
        classes: int,
    ) -> None:
        super().__init__()
        width = _STAGE_CHANNELS[0]
        layers: list[nn.Module] = [_convolution(inputs, width, 3), nn.ReLU()]
        for stage, (channels, blocks) in enumerate(
            zip(_STAGE_CHANNELS, blocks_per_stage, strict=True)
        ):
            for number in range(blocks):
                stride = 2 if stage > 0 and number == 0 else 1
                layers.append(block(width, channels, stride))
                width = block.expansion * channels
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, classes)
        he_normal(self)

    def forward(self, inputs: Tensor) -> Output:
        features = self.body(inputs).mean(dim=(2, 3))
        return Output(self.head(features), features)
