"""The contract of an objective: a differentiable calibration error of a batch.

An objective is a plain function ``name(logits (N, K), labels (N,), *, hyperparameters)`` that
returns a 0-dim tensor to be minimised. Its scale is that of a mean: it does not grow with N.
Real-valued hyperparameters may be 0-dim tensors, to be differentiated or batched over; integers
are Python integers. All are safe under double backward and torch.func's transforms, and finite,
with a finite gradient, at saturated logits and in batches that are all right or all wrong.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from calibration.registry import Registry

Objective = Callable[..., Tensor]
Real = Tensor | float

OBJECTIVES: Registry[Objective] = Registry("objective", "calsweep.objectives")


def check_batch(logits: Tensor, labels: Tensor) -> None:
    """Raise ``ValueError`` unless logits are (N, K) and labels (N,), with N ≥ 1 and K ≥ 2.

    Labels of shape (N, 1) would otherwise silently be compared with every row.
    """
    if logits.ndim != 2 or logits.shape[0] < 1 or logits.shape[1] < 2:
        raise ValueError(
            f"logits must have shape (N, K) with N ≥ 1 samples and K ≥ 2 classes, "
            f"found {tuple(logits.shape)}"
        )
    if labels.shape != logits.shape[:1]:
        raise ValueError(
            f"labels must have shape ({logits.shape[0]},), one for each row of logits, "
            f"found {tuple(labels.shape)}"
        )
