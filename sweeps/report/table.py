"""The parts of a table on a page; the macro ``sortable`` draws it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup


class Head(NamedTuple):
    """A column's heading; ``about`` is shown on hover, ``kind`` is its cells' class.

    ``ends`` are the ends of the scale on which its cells are drawn.
    """

    text: str
    about: str = ""
    kind: str = ""
    ends: tuple[float, float] | None = None


class TableCell(NamedTuple):
    """A cell's content and, if it is a number, its sort value; NaN sorts last."""

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
    """A table with a name for screen readers; ``kind`` is its CSS class."""

    name: str
    heads: Sequence[Head]
    rows: Sequence[TableRow]
    kind: str = ""
