"""Wide residual networks (Zagoruyko & Komodakis 2016)."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn

from calibration.models.initialisation import he_normal
from calibration.models.model import MODELS, image_shape
from calibration.models.monte_carlo import DropoutModelOptions
from calibration.models.output import Network, Output


@MODELS.register("wide_resnet")
class WideResNet(DropoutModelOptions):
    """Wide residual network, WRN-28-10 by default, for images of about 32×32 to 64×64 pixels.

    Convolutions start as in He et al. 2015, the last layer's biases at zero.
    """

    depth: Annotated[int, Field(ge=10, description="layers, 6·n + 4")] = 28
    widen: Annotated[int, Field(ge=1, description="factor on 16, 32 and 64 channels")] = 10
    dropout: Annotated[
        float, Field(ge=0, lt=1, description="between the two convolutions of a block")
    ] = 0.0

    @field_validator("depth")
    @classmethod
    def _three_equal_stages(cls, depth: int) -> int:
        if (depth - 4) % 6:
            lower = depth - (depth - 4) % 6
            raise ValueError(f"depth must be 6·n + 4, such as {lower} or {lower + 6}")
        return depth

    def build(self, input_shape: tuple[int, ...], classes: int) -> Network:
        """A network of three stages of (depth − 4) / 6 blocks."""
        channels, _, _ = image_shape(input_shape, "wide_resnet", 1)
        return self.predicting(_WideResNet(self, channels, classes))


def _convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)


class _Block(nn.Module):
    """Pre-activated: BN, ReLU, convolution, twice, with dropout in between."""

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.activate = nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU())
        self.residual = nn.Sequential(
            _convolution(inputs, outputs, stride),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Dropout(dropout),
            _convolution(outputs, outputs),
        )
        self.projection = (
            None if inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        active = self.activate(inputs)
        residual: Tensor = self.residual(active)
        # A projection uses the activation; an identity shortcut bypasses it.
        return residual + (inputs if self.projection is None else self.projection(active))


class _WideResNet(Network):
    def __init__(self, options: WideResNet, inputs: int, classes: int) -> None:
        super().__init__()
        width = 16
        layers: list[nn.Module] = [_convolution(inputs, width)]
        for channels, stride in ((16, 1), (32, 2), (64, 2)):
            for number in range((options.depth - 4) // 6):
                outputs = channels * options.widen
                layers.append(_Block(width, outputs, stride if number == 0 else 1, options.dropout))
                width = outputs
        self.body = nn.Sequential(*layers, nn.BatchNorm2d(width))
        self.head = nn.Linear(width, classes)
        he_normal(self)
        nn.init.zeros_(self.head.bias)

    def forward(self, inputs: Tensor) -> Output:
        features = torch.relu(self.body(inputs)).mean(dim=(2, 3))
        return Output(self.head(features), features)
