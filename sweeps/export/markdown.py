"""The format of names, numbers and tables in the model card."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sweeps.report.escaping import markdown_code

MOST_DIGITS = 17
"""Digits that distinguish any two numbers."""


def table(rows: Mapping[str, str]) -> Iterator[str]:
    """The lines of a table of names and values."""
    yield "| | |"
    yield "|---|---|"
    yield from (f"| {name} | {value} |" for name, value in rows.items())


def settings(values: Mapping[str, Any]) -> str:
    """``lr = 0.1, widths = [8]`` as code, or "no settings"."""
    shown = ", ".join(f"{name} = {_value(value)}" for name, value in values.items())
    return markdown_code(shown) if shown else "no settings"


def interval(value: float, ends: Iterable[float] | None) -> str:
    """``0.0123 [0.0045, 0.0678]``, without the brackets if there is no interval."""
    if math.isnan(value):
        return "–"
    known = [float(end) for end in ends or ()]
    if not known or any(math.isnan(end) for end in known):
        return f"{value:.4f}"
    return f"{value:.4f} [{known[0]:.4f}, {known[1]:.4f}]"


def percent(share: float) -> str:
    """``57.7 %``."""
    return f"{100 * share:.1f} %"


def confidence(value: float) -> str:
    """A confidence with enough digits to show that it is not 1; ``1`` if it is."""
    digits = 6
    while value != 1 and float(f"{value:.{digits}g}") == 1 and digits < MOST_DIGITS:
        digits += 1
    return f"{value:.{digits}g}"


def _value(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
