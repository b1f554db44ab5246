"""Networks of linear layers with ReLUs between them: hand-written values and gradients.

The kernels are autograd's, without a graph, except for products with a few columns, where BLAS
takes up to eight times as long as for their transpose. Parameters may be those of K networks,
stacked along a first dimension: each product is then one batched product.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor


class Dense:
    """Such a network as a function of one flat vector, like ``FunctionalModel``'s.

    ``widths`` are those of the inputs, of every hidden layer and of the logits.
    """

    def __init__(self, widths: Sequence[int]) -> None:
        self.widths = tuple(widths)
        self._shapes = [(b, a) for a, b in pairwise(widths)]
        self._sizes = [size for b, a in self._shapes for size in (a * b, b)]

    def forward(self, parameters: Tensor, inputs: Tensor) -> DensePass:
        """Parameters (P) and inputs (N, …), or (K, P) and (K, N, …)."""
        batched = parameters.dim() - 1
        weights, biases = self.layers(parameters)
        values = inputs.flatten(1 + batched)
        into: list[Tensor] = []
        multiply = torch.baddbmm if batched else torch.addmm
        for weight, bias in zip(weights, biases, strict=True):
            into.append(values.relu_() if into else values)
            values = multiply(bias, values, weight.mT)
        return DensePass(self, values, into, weights)

    def layers(self, parameters: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Views of the flat vector: the weights of every layer, and its biases as a row."""
        *members, _ = parameters.shape
        parts = parameters.split_with_sizes(self._sizes, dim=-1)
        weights = [
            part.view(*members, *shape)
            for part, shape in zip(parts[::2], self._shapes, strict=True)
        ]
        return weights, [part.unsqueeze(-2) for part in parts[1::2]]


class DensePass(NamedTuple):
    """The logits, the input of each layer, and the layers' weights."""

    dense: Dense
    logits: Tensor
    into: list[Tensor]
    weights: list[Tensor]

    @property
    def features(self) -> Tensor:
        """The input of the last layer."""
        return self.into[-1]

    def backward(self, logits_bar: Tensor, features_bar: Tensor | None = None) -> Tensor:
        """The gradient with respect to the parameters, given those for the logits and features.

        ``features_bar`` is the contribution of a loss that uses the features directly.
        """
        return self.gradient(self.bars(logits_bar, features_bar))

    def bars(self, logits_bar: Tensor, features_bar: Tensor | None = None) -> list[Tensor]:
        """The gradients at each layer's output before its ReLU, first layer first."""
        found = [logits_bar]
        for layer in range(len(self.into) - 1, 0, -1):
            bar = self._multiply(found[-1], self.weights[layer])
            if features_bar is not None:
                bar, features_bar = bar + features_bar, None
            found.append(self._passed(bar, layer))
        return found[::-1]

    def gradient(self, bars: list[Tensor]) -> Tensor:
        """The gradient with respect to the parameters, given ``bars``."""
        return self._flat(map(self._slope, bars, self.into), bars)

    def tangent(self, direction: Tensor) -> DenseTangent:
        """The directional derivative of ``forward`` along a direction of the parameters.

        Together with ``gradient_along`` this is R{∇} of Pearlmutter 1994, "Fast exact
        multiplication by the Hessian".
        """
        weights, biases = self.dense.layers(direction)
        add = torch.baddbmm if direction.dim() > 1 else torch.addmm
        into: list[Tensor] = []
        for layer, values in enumerate(self.into):
            moved = add(biases[layer], values, weights[layer].mT)
            if layer:
                moved = add(moved, into[-1], self.weights[layer].mT)
            if layer + 1 < len(self.into):
                into.append(self._passed(moved, layer + 1))
        return DenseTangent(moved, into, weights)

    def gradient_along(
        self, bars: list[Tensor], tangent: DenseTangent, logits_bar_along: Tensor
    ) -> Tensor:
        """The derivative of ``gradient`` along the tangent's direction.

        ``logits_bar_along`` is that of the gradient at the logits, ``bars[-1]``.
        """
        add = torch.baddbmm if self.logits.dim() > 2 else torch.addmm
        bar_along = logits_bar_along
        alongs: list[Tensor] = []
        slopes: list[Tensor] = []
        for layer in range(len(self.into) - 1, -1, -1):
            slope = self._slope(bar_along, self.into[layer])
            if layer:
                slope = slope + self._slope(bars[layer], tangent.into[layer - 1])
            alongs.append(bar_along)
            slopes.append(slope)
            if layer:
                through = self._multiply(bar_along, self.weights[layer])
                bar_along = self._passed(add(through, bars[layer], tangent.weights[layer]), layer)
        return self._flat(slopes[::-1], alongs[::-1])

    def _passed(self, values: Tensor, layer: int) -> Tensor:
        """Set to 0, in place, where the ReLU before that layer gave 0."""
        into = self.into[layer]
        torch.ops.aten.threshold_backward.grad_input(values, into, 0, grad_input=values)
        return values

    def _multiply(self, one: Tensor, other: Tensor) -> Tensor:
        return torch.bmm(one, other) if one.dim() > 2 else torch.mm(one, other)

    def _slope(self, bar: Tensor, into: Tensor) -> Tensor:
        """The gradient for a layer's weights; with few columns, computed as the transpose."""
        if into.shape[-1] < bar.shape[-1]:
            return self._multiply(into.mT, bar).mT
        return self._multiply(bar.mT, into)

    def _flat(self, slopes: Iterable[Tensor], bars: list[Tensor]) -> Tensor:
        """One vector of the gradients for all weights, and for the biases (sums of ``bars``)."""
        batched = self.logits.dim() - 2
        pairs = zip(slopes, bars, strict=True)
        parts = [part for slope, bar in pairs for part in (slope.flatten(batched), bar.sum(-2))]
        return torch.cat(parts, dim=-1)


class DenseTangent(NamedTuple):
    """Directional derivatives of the logits, and of the input of each layer except the first.

    ``weights`` is the direction itself, layer by layer.
    """

    logits: Tensor
    into: list[Tensor]
    weights: list[Tensor]
