"""Tables for pages: headings that sort, cells that say what they sort by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple


class Head(NamedTuple):
    """A column's heading; ``about`` is told to who hovers, ``kind`` is its cells' class."""

    text: str
    about: str = ""
    kind: str = ""
    below: str = ""


class TableCell(NamedTuple):
    """A cell's HTML and, where it is a number, what it sorts by."""

    html: str
    value: float | None = None


class TableRow(NamedTuple):
    """The cells of a row, the first being its name, and the row's classes."""

    cells: Sequence[TableCell]
    kind: str = ""


def text(words: str) -> TableCell:
    """A cell of plain text."""
    return TableCell(escape(words))


def value(number: float, shown: str) -> TableCell:
    """A cell of a number, sorted by it; NaN sorts last."""
    return TableCell(escape(shown), number)


def sortable(name: str, heads: Sequence[Head], rows: Sequence[TableRow], kind: str = "") -> str:
    """A table in a box of its own that scrolls sideways; a click on a heading sorts it."""
    head = "".join(_head(each) for each in heads)
    body = "\n".join(_row(heads, row) for row in rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(name)}">'
        f'<table class="sortable {kind}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _head(head: Head) -> str:
    about = f' title="{escape(head.about)}"' if head.about else ""
    kind = f' class="{head.kind}"' if head.kind else ""
    return (
        f'<th scope="col"{kind} aria-sort="none"><button type="button"{about}>'
        f"{escape(head.text)}</button>{head.below}</th>"
    )


def _row(heads: Sequence[Head], row: TableRow) -> str:
    first, *others = row.cells
    cells = [f'<th scope="row"{_sorted_by(first)}>{first.html}</th>']
    for head, cell in zip(heads[1:], others, strict=True):
        kind = f' class="{head.kind}"' if head.kind else ""
        cells.append(f"<td{kind}{_sorted_by(cell)}>{cell.html}</td>")
    kind = f' class="{row.kind}"' if row.kind else ""
    return f"<tr{kind}>{''.join(cells)}</tr>"


def _sorted_by(cell: TableCell) -> str:
    if cell.value is None:
        return ""
    if math.isnan(cell.value):
        return ' data-v=""'
    # JavaScript does not know Python's "inf".
    shown = f"{cell.value:.6g}".replace("inf", "Infinity")
    return f' data-v="{shown}"'
