"""Networks of linear layers with ReLUs between them: values and gradients by hand.

Autograd's kernels without a graph, but for products with a few columns, where BLAS takes up to
eight times as long as for their transpose. Parameters may be those of K networks, stacked along a
first dimension: each product is then one batched product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor


class Dense:
    """The function of one flat vector that ``FunctionalModel`` makes of such a network.

    ``widths``: of the inputs, of every hidden layer, of the logits.
    """

    def __init__(self, widths: Sequence[int]) -> None:
        self.widths = tuple(widths)
        self._shapes = [(b, a) for a, b in pairwise(widths)]
        self._sizes = [size for b, a in self._shapes for size in (a * b, b)]

    def forward(self, parameters: Tensor, inputs: Tensor) -> DensePass:
        """Parameters (P) and inputs (N, …), or (K, P) and (K, N, …)."""
        *members, _ = parameters.shape
        parts = parameters.split_with_sizes(self._sizes, dim=-1)
        weights = [
            part.view(*members, *shape)
            for part, shape in zip(parts[::2], self._shapes, strict=True)
        ]
        values = inputs.flatten(1 + len(members))
        into: list[Tensor] = []
        multiply = torch.baddbmm if members else torch.addmm
        for weight, bias in zip(weights, parts[1::2], strict=True):
            into.append(values.relu_() if into else values)
            values = multiply(bias.unsqueeze(-2), values, weight.mT)
        return DensePass(values, into, weights)


class DensePass(NamedTuple):
    """The logits, what went into each layer, and the layers' weights."""

    logits: Tensor
    into: list[Tensor]
    weights: list[Tensor]

    @property
    def features(self) -> Tensor:
        """What the last layer sees."""
        return self.into[-1]

    def backward(self, logits_bar: Tensor, features_bar: Tensor | None = None) -> Tensor:
        """The gradient at the parameters, given those at the logits and at the features.

        ``features_bar`` is what a loss adds that looks at the features themselves.
        """
        batched = self.logits.dim() - 2
        multiply: Callable[[Tensor, Tensor], Tensor] = torch.bmm if batched else torch.mm
        bar = logits_bar
        slopes: list[Tensor] = []
        for layer in range(len(self.into) - 1, -1, -1):
            into = self.into[layer]
            narrow = into.shape[-1] < bar.shape[-1]
            slope = multiply(into.mT, bar).mT if narrow else multiply(bar.mT, into)
            slopes += [bar.sum(batched), slope.flatten(batched)]
            if layer:
                bar = multiply(bar, self.weights[layer])
                if features_bar is not None:
                    bar, features_bar = bar + features_bar, None
                torch.ops.aten.threshold_backward.grad_input(bar, into, 0, grad_input=bar)
        return torch.cat(slopes[::-1], dim=batched)
