"""What a table of a page consists of; the macro ``sortable`` draws it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup


class Head(NamedTuple):
    """A column's heading; ``about`` is shown on hover, ``kind`` is its cells' class.

    ``ends`` are those of the scale that its cells are drawn on.
    """

    text: str
    about: str = ""
    kind: str = ""
    ends: tuple[float, float] | None = None


class TableCell(NamedTuple):
    """What a cell shows and, where it is a number, what it sorts by; NaN sorts last."""

    shown: str | Markup
    value: float | None = None

    @property
    def key(self) -> str | None:
        """The value as the page's script reads it: JavaScript does not know Python's ``inf``."""
        if self.value is None or math.isnan(self.value):
            return None if self.value is None else ""
        return f"{self.value:.6g}".replace("inf", "Infinity")


class TableRow(NamedTuple):
    """The cells of a row, the first being its name, and the row's classes."""

    cells: Sequence[TableCell]
    kind: str = ""


class SortableTable(NamedTuple):
    """A table with a name for who cannot see it; ``kind`` is its class."""

    name: str
    heads: Sequence[Head]
    rows: Sequence[TableRow]
    kind: str = ""
