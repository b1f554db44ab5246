"""The interface of hypergradient engines.

The inner problem trains θ for T steps on a loss that depends on outer variables u; the
outer loss evaluates θ_T. An engine returns d f(θ_T(u), u) / du together with θ_T itself, so
that a method can continue from there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from calibration.optimisers import Optimiser, OptimiserState
from calibration.registry import Registry

ENGINES: Registry[type[Engine]] = Registry("hypergradient engine", "calsweep.engines")

InnerLoss = Callable[[Tensor, Tensor, int], Tensor]
"""(parameters θ, outer variables u, number of the step from 0) → a 0-dim loss.

Must be twice differentiable and deterministic in its arguments: engines that save memory
recompute it.
"""

OuterLoss = Callable[[Tensor, Tensor], Tensor]
"""(parameters θ_T, outer variables u) → a 0-dim loss, differentiable in both."""


@dataclass(frozen=True)
class InnerProblem:
    """T steps of an optimiser on a loss that depends on outer variables.

    Raises ``ValueError`` if ``steps`` is less than 1.
    """

    loss: InnerLoss
    optimiser: Optimiser
    lr: Tensor
    weight_decay: Tensor
    steps: int

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps must be at least 1; got {self.steps}")


class Hypergradient(NamedTuple):
    """The gradient in the outer variables, and the end of the inner problem; all detached.

    ``value`` is the outer loss at θ_T, ``inner_loss`` the inner loss at the last step.
    """

    gradient: Tensor
    value: Tensor
    inner_loss: Tensor
    parameters: Tensor
    optimiser: OptimiserState


class Engine(ABC):
    """One way to differentiate the outer loss through the inner problem.

    ``terms`` is the k of engines that truncate something (steps, series, iterations);
    exact engines ignore it.
    """

    description: ClassVar[str]
    exact: ClassVar[bool]
    grows_with_lr: ClassVar[bool] = True
    """Whether, over one step, the indirect part of the gradient is proportional to lr."""

    def __init__(self, terms: int = 5) -> None:
        if terms < 1:
            raise ValueError(f"terms must be at least 1; got {terms}")
        self.terms = terms

    @abstractmethod
    def hypergradient(
        self,
        problem: InnerProblem,
        outer_loss: OuterLoss,
        parameters: Tensor,
        optimiser: OptimiserState,
        outer: Tensor,
    ) -> Hypergradient:
        """Train from ``parameters`` and differentiate; works with gradients enabled or not."""
