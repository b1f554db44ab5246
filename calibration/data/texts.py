"""Labels and categories as text; a separate module, as reading predictions needs only NumPy."""

from __future__ import annotations

import numpy as np


def as_text(value: object) -> str:
    """Return a label or category as text; 3.0 becomes 3, as missing values turn ints to floats."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)
