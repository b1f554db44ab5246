"""Hypergradients: the derivative of an outer loss through the training that it evaluates.

One file per engine, all with one signature; ``flat_unroll`` is the exact one to start with.
"""

from __future__ import annotations

from calibration.bilevel import (  # noqa: F401  (importing an engine registers it)
    adjoint,
    conjugate_gradient,
    flat_unroll,
    neumann,
    one_step,
    truncated,
    unroll,
)
from calibration.bilevel.engine import (
    ENGINES,
    Engine,
    Hypergradient,
    InnerLoss,
    InnerProblem,
    OuterLoss,
)

__all__ = [
    "ENGINES",
    "Engine",
    "Hypergradient",
    "InnerLoss",
    "InnerProblem",
    "OuterLoss",
    "make_engine",
]


def make_engine(name: str, terms: int = 5) -> Engine:
    """Construct the engine registered as ``name`` or at an import path; ``terms`` is its k, if any.

    Raises ``UnknownNameError`` for an unknown name and ``ValueError`` if ``terms`` is less than 1.
    """
    return ENGINES[name](terms)
