"""A square root with a finite gradient at 0."""

from __future__ import annotations

from torch import Tensor

# Square of the smallest root resolved: below float32's precision for any mean of errors.
_LEAST = 1e-12


def bounded_sqrt(square: Tensor) -> Tensor:
    """√x for x ≥ 1e-12, linear to 0 below that, and 0 for negative x.

    The root's slope is infinite at 0, the value of a perfectly calibrated batch; here it is at
    most 1e6, and 0 · 1e6 is 0, while 0 · ∞ would be NaN. Rounding may leave a sum of squares
    slightly below 0.
    """
    square = square.clamp_min(0)
    return square / square.clamp_min(_LEAST).sqrt()
