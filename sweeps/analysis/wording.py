"""The format of numbers, counts and names in sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence


def number(value: float, digits: int = 3) -> str:
    """A number, or a dash if there is none."""
    return "–" if math.isnan(value) else f"{value:.{digits}f}".replace("inf", "∞")


def quoted(name: str) -> str:
    """A name within a sentence: in quotation marks if it contains a comma."""
    return f"“{name}”" if "," in name else name


def listed(names: Sequence[str], most: int = 6) -> str:
    """``a, b and c``; ``a, b, c and 12 others``."""
    names = [quoted(name) for name in names]
    if len(names) > most + 1:
        names = [*names[:most], f"{len(names) - most} others"]
    *all_but_last, last = names or [""]
    return f"{', '.join(all_but_last)} and {last}" if all_but_last else last
