"""A pretrained network with a head, both trained."""

from __future__ import annotations

from typing import Self

from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from calibration.models.output import Network, Output


class FineTuned(Network):
    """A backbone that gives one vector per input, and a head on these vectors.

    The backbone comes first: its parameters are the first of a flat vector. If it is ``held``, it
    always runs in evaluation mode: batch normalisation then neither uses batch statistics nor
    updates its own.
    """

    def __init__(self, backbone: nn.Module, head: Network, rows_at_once: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.rows_at_once = rows_at_once
        self.held = False

    def train(self, mode: bool = True) -> Self:
        """Set the mode of the head, and that of a backbone that is not held."""
        super().train(mode)
        self.backbone.train(mode and not self.held)
        return self

    def forward(self, inputs: Tensor) -> Output:
        """The head's output on the backbone's vectors."""
        # Fused attention can be differentiated only once; bilevel methods need it twice.
        with sdpa_kernel(SDPBackend.MATH):
            output: Output = self.head(self.backbone(inputs))
        return output
