"""A square root that training can pass through at 0."""

from __future__ import annotations

from torch import Tensor

# Square of the least root resolved: below float32's precision of any mean of errors.
_LEAST = 1e-12


def bounded_sqrt(square: Tensor) -> Tensor:
    """√x for x ≥ 1e-12, below that the straight line to 0, and 0 for negative x.

    The root's slope is infinite at 0, where a perfectly calibrated batch lies; here it is at
    most 1e6, and 0 · 1e6 is 0 where 0 · ∞ would be NaN. Rounding may leave a sum of squares
    slightly below 0.
    """
    square = square.clamp_min(0)
    return square / square.clamp_min(_LEAST).sqrt()
