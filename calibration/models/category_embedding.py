"""Learned vectors for categories, before any model of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from calibration.models.model import build_model
from calibration.models.output import Network, Output


class CategoryEmbedding(Network):
    """Replaces one-hot blocks, the last inputs, by a learned vector per category.

    Blocks of at most ``width`` categories are unchanged. A category unknown in training,
    all zeros in its block, has the vector 0.
    """

    def __init__(self, network: Network, blocks: Sequence[int], width: int) -> None:
        super().__init__()
        self.blocks = tuple(blocks)
        # Of unit length on average, like a one-hot block.
        tables = (torch.randn(size, width) / width**0.5 for size in blocks if size > width)
        self.tables = nn.ParameterList(nn.Parameter(table) for table in tables)
        self.network = network  # after the tables, so that its last layer is the last of all

    def forward(self, inputs: Tensor) -> Output:
        """The network's output on embedded inputs."""
        plain, *categories = inputs.split(
            [inputs.shape[-1] - sum(self.blocks), *self.blocks], dim=-1
        )
        tables = iter(self.tables)
        width = self.tables[0].shape[1]
        embedded = [
            block @ next(tables) if block.shape[-1] > width else block for block in categories
        ]
        output: Output = self.network(torch.cat([plain, *embedded], dim=-1))
        return output


def build_embedded(
    name: str,
    options: dict[str, Any],
    input_shape: Sequence[int],
    classes: int,
    *,
    blocks: Sequence[int],
    width: int,
) -> Network:
    """A model whose last inputs are one-hot ``blocks``, embedded in ``width`` numbers each.

    With ``width`` 0, or no larger block, this is ``build_model``. Like it, raises
    ``ValueError`` for a model that cannot be built.
    """
    large = [size for size in blocks if size > width] if width else []
    if not large:
        return build_model(name, options, input_shape, classes)
    inner = input_shape[0] - sum(large) + width * len(large)
    return CategoryEmbedding(build_model(name, options, (inner,), classes), blocks, width)
