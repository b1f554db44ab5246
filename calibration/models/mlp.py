"""Fully connected networks."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor, nn

from calibration.models.dense import Dense
from calibration.models.model import MODELS
from calibration.models.monte_carlo import DropoutModelOptions
from calibration.models.output import Network, Output

Activation = Literal["relu", "tanh", "gelu", "silu"]

_ACTIVATIONS: dict[Activation, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}


@MODELS.register("mlp")
class MLP(DropoutModelOptions):
    """Fully connected network on the flattened input.

    Weights and biases start uniform in ±1/√fan_in, PyTorch's default; random biases matter for
    inputs of few dimensions, where otherwise every unit's boundary passes through the origin.
    """

    widths: Annotated[
        tuple[Annotated[int, Field(ge=1)], ...], Field(description="units of each hidden layer")
    ] = (64, 64)
    activation: Annotated[Activation, Field(description="after each hidden layer")] = "relu"
    dropout: Annotated[
        float, Field(ge=0, lt=1, description="share of hidden units dropped in training")
    ] = 0.0

    def build(self, input_shape: tuple[int, ...], classes: int) -> Network:
        """A network for inputs of any shape."""
        return self.predicting(_MLP(self, math.prod(input_shape), classes))


class _MLP(Network):
    def __init__(self, options: MLP, inputs: int, classes: int) -> None:
        super().__init__()
        widths = (inputs, *options.widths)
        layers: list[nn.Module] = [nn.Flatten()]
        for fan_in, fan_out in pairwise(widths):
            layers += [nn.Linear(fan_in, fan_out), _ACTIVATIONS[options.activation]()]
            if options.dropout:
                layers.append(nn.Dropout(options.dropout))
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1], classes)
        self.plain = options.activation == "relu" and not options.dropout

    @property
    def dense_form(self) -> Dense | None:
        """The same function without modules, if all layers are linear layers and ReLUs."""
        if not self.plain:
            return None
        linear = [layer for layer in (*self.body, self.head) if isinstance(layer, nn.Linear)]
        return Dense([linear[0].in_features, *(layer.out_features for layer in linear)])

    def forward(self, inputs: Tensor) -> Output:
        features = inputs
        # Not layer(features): nn.Module's overhead per call is a tenth of a small step.
        for layer in self.body:
            features = layer.forward(features)
        return Output(self.head.forward(features), features)
