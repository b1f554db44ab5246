"""A chart of the page: traces and a layout for plotly, a legend, and a description.

Colours are names of the page's CSS variables, such as ``--series-0``: the page looks them up
when it draws and again when the reader switches between dark and light.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple

import numpy as np

from calibration.text import visible

_COLOURS = 7
DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = (
    "circle",
    "square",
    "diamond",
    "triangle-up",
    "cross",
    "x",
    "triangle-down",
    "star",
    "hexagon",
    "pentagon",
    "triangle-left",
    "triangle-right",
    "hourglass",
    "bowtie",
)
DIGITS = 5


class Look(NamedTuple):
    """The style of a row: its method's colour, its calibrator's dash and symbol."""

    colour: str
    dash: str
    symbol: str


class Key(NamedTuple):
    """An entry of a chart's legend: it shows and hides the traces of its group."""

    name: str
    group: str
    look: Look
    shown: bool = True
    line: bool = True


@dataclass(frozen=True)
class Chart:
    """One chart: ``about`` describes it, for captions and for screen readers."""

    title: str
    about: str
    traces: list[dict[str, Any]]
    layout: dict[str, Any]
    height: int = 340
    keys: list[Key] = field(default_factory=list)
    small: bool = False

    def json(self) -> str:
        """The chart as JSON, safe inside a script element, numbers with five digits."""
        content = {
            "traces": self.traces,
            "layout": self.layout,
            "keys": [key._asdict() | {"look": key.look._asdict()} for key in self.keys],
            "small": self.small,
        }
        return embedded(content)


def embedded(content: Any) -> str:
    """JSON that cannot end the script element that contains it."""
    text = json.dumps(_plain(content), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c")


def looks(rows: Iterable[tuple[str, str]], methods: Iterable[str]) -> dict[tuple[str, str], Look]:
    """A look for every (row, calibrator): rows differ in colour, calibrators in dash and symbol."""
    colours = {method: number for number, method in enumerate(methods)}
    calibrators = {"identity": 0}
    found = {}
    for method, calibrator in rows:
        number = colours.setdefault(method, len(colours))
        which = calibrators.setdefault(calibrator, len(calibrators))
        found[method, calibrator] = Look(
            f"--series-{number % _COLOURS}",
            DASHES[which % len(DASHES)],
            SYMBOLS[which % len(SYMBOLS)],
        )
    return found


def words(name: str) -> str:
    """A name escaped for plotly, whose texts are a kind of HTML."""
    return escape(name, quote=False)


def settings(hyperparameters: Mapping[str, Any]) -> str:
    """``lr 0.003, gamma 2`` for a hover text."""
    return ", ".join(f"{name} {_short(value)}" for name, value in hyperparameters.items())


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _plain(content: Any) -> Any:
    """Plain values: arrays as lists, floats with five digits, NaN and infinities as null, and
    texts without control characters.
    """
    if isinstance(content, str):
        return visible(content)
    if isinstance(content, Mapping):
        return {key: _plain(value) for key, value in content.items()}
    if isinstance(content, np.ndarray):
        return _plain(content.tolist())
    if isinstance(content, list | tuple):
        return [_plain(value) for value in content]
    if isinstance(content, float | np.floating):
        number = float(content)
        if not math.isfinite(number):
            return None
        short = float(f"{number:.{DIGITS}g}")
        return int(short) if short.is_integer() and abs(short) < 1e15 else short
    if isinstance(content, np.integer):
        return int(content)
    return content
