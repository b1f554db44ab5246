"""How numbers, counts and names are written in a sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence


def number(value: float, digits: int = 3) -> str:
    """A number, or a dash where there is none."""
    return "–" if math.isnan(value) else f"{value:.{digits}f}".replace("inf", "∞")


def quoted(name: str) -> str:
    """A name within a sentence: in quotation marks if it has a comma of its own."""
    return f"“{name}”" if "," in name else name


def listed(names: Sequence[str], most: int = 6) -> str:
    """``a, b, c and 12 others``."""
    names = [quoted(name) for name in names]
    if len(names) <= most + 1:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} others"
