"""Post-hoc calibrators: maps from logits to calibrated probabilities, fitted on held-out data.

``fit("temperature", logits, labels)`` gives a fitted calibrator; calling it on other logits gives
their probabilities. A user adds one by subclassing ``Calibrator`` and registering it in
``CALIBRATORS`` (``calibration.testing.check_calibrator`` checks the contract).
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from calibration.calibrators import (  # noqa: F401  (importing a file registers its calibrators)
    bbq,
    beta,
    cdf_spline,
    histogram,
    identity,
    isotonic,
    kernel,
    matrix,
    platt,
    polynomial,
    spline,
    temperature,
    vector,
    venn_abers,
)
from calibration.calibrators.calibrator import CALIBRATORS, Calibrator

__all__ = ["CALIBRATORS", "Calibrator", "fit", "names"]


def fit(name: str, logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> Calibrator:
    """A new calibrator of that name (or import path), fitted on held-out data.

    Raises ``UnknownNameError`` for an unknown name and ``ValueError`` for bad data.

    >>> import torch
    >>> logits = torch.tensor([[4.0, 0.0], [4.0, 0.0], [4.0, 0.0]])  # says 98 % …
    >>> labels = torch.tensor([0, 0, 1])  # … and is right two times out of three
    >>> fit("temperature", logits, labels)(logits[:1])
    tensor([[0.6667, 0.3333]], dtype=torch.float64)
    """
    return CALIBRATORS[name]().fit(logits, labels, weights)


def names(which: Literal["fast", "all"]) -> list[str]:
    """The registered names in alphabetical order, all or only those cheap at 1000 classes.

    Raises ``ValueError`` if ``which`` is neither.
    """
    if which not in ("fast", "all"):
        raise ValueError(f"which must be 'fast' or 'all', found {which!r}")
    return [name for name in CALIBRATORS if which == "all" or CALIBRATORS[name].fast]
