"""A small convolutional network."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

from pydantic import Field
from torch import Tensor, nn

from calibration.models.initialisation import he_normal
from calibration.models.model import MODELS, image_shape
from calibration.models.monte_carlo import DropoutModelOptions
from calibration.models.output import Network, Output


@MODELS.register("small_cnn")
class SmallCNN(DropoutModelOptions):
    """Small convolutional network for images of 8×8 to 64×64 pixels.

    Stages of 3×3 convolution, batch normalisation and ReLU, with 2×2 max-pooling between them
    and global average pooling at the end; He et al. 2015's initialisation.
    """

    channels: Annotated[
        tuple[Annotated[int, Field(ge=1)], ...],
        Field(min_length=1, description="feature maps of each stage"),
    ] = (32, 64, 128)
    dropout: Annotated[
        float, Field(ge=0, lt=1, description="share of features dropped before the last layer")
    ] = 0.0

    def build(self, input_shape: tuple[int, ...], classes: int) -> Network:
        """A network for images; every stage except the last halves their sides."""
        smallest = 2 ** (len(self.channels) - 1)
        channels, _, _ = image_shape(input_shape, "small_cnn", smallest)
        return self.predicting(_SmallCNN(self, channels, classes))


class _SmallCNN(Network):
    def __init__(self, options: SmallCNN, inputs: int, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for fan_in, fan_out in pairwise((inputs, *options.channels)):
            if layers:
                layers.append(nn.MaxPool2d(2))
            layers += [
                nn.Conv2d(fan_in, fan_out, 3, padding=1, bias=False),
                nn.BatchNorm2d(fan_out),
                nn.ReLU(),
            ]
        self.body = nn.Sequential(*layers)
        self.dropout = nn.Dropout(options.dropout)
        self.head = nn.Linear(options.channels[-1], classes)
        he_normal(self)

    def forward(self, inputs: Tensor) -> Output:
        features = self.dropout(self.body(inputs).mean(dim=(2, 3)))
        return Output(self.head(features), features)
