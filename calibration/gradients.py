"""The gradient inside a training step, fast in training and differentiable elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

Auxiliary = TypeVar("Auxiliary")


def differentiated() -> bool:
    """Whether the current computation may be differentiated through, or transformed."""
    return torch.is_grad_enabled() or bool(torch._C._are_functorch_transforms_active())


def gradient(
    objective: Callable[[Tensor], tuple[Tensor, Auxiliary]], parameters: Tensor
) -> tuple[Tensor, Auxiliary]:
    """The gradient of ``objective``'s first result at ``parameters``, and its second result.

    Under ``torch.no_grad``, the step is not differentiated through and plain autograd suffices:
    on small networks it takes half the time of torch.func, and BatchNorm keeps its fused
    kernel. Otherwise, and inside torch.func's transforms, the result is itself differentiable.
    """
    if differentiated():
        found: tuple[Tensor, Auxiliary] = torch.func.grad(objective, has_aux=True)(parameters)
        return found
    leaf = parameters.detach().requires_grad_()
    with torch.enable_grad():
        value, auxiliary = objective(leaf)
    (slope,) = torch.autograd.grad(value, leaf)
    return slope, auxiliary
