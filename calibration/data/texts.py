"""Labels and categories as text; apart, so that reading predictions needs numpy alone."""

from __future__ import annotations

import numpy as np


def as_text(value: object) -> str:
    """Return a label or category as text; a missing value elsewhere makes 3 a 3.0, so undo it."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)
