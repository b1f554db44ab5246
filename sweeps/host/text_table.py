"""A text table that fits the terminal: columns are dropped by rank, names never truncated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

from calibration.text import visible

_GAP = 2
_INDENT = 2
ALWAYS = 0
"""The rank of columns that are always shown."""


@dataclass(frozen=True)
class TextColumn:
    """A column of a ``TextTable``: the higher its ``rank``, the sooner it is dropped."""

    head: str
    cells: Sequence[str]
    rank: int = ALWAYS
    left: bool = False

    @property
    def width(self) -> int:
        """Its width in characters."""
        return max(map(cell_len, (self.head, *self.cells)))

    def aligned(self, text: str) -> str:
        """The text of a cell or heading, padded to the column's width."""
        space = " " * (self.width - cell_len(text))
        return f"{text}{space}" if self.left else f"{space}{text}"


class TextTable:
    """Named rows with columns of numbers, for a terminal of any width.

    If the required columns do not fit beside the names, every name has a line of its own.
    ``title`` is given in parts, on one line or on one each. Only a name longer than the line
    exceeds it: half a name would be another name.
    """

    def __init__(
        self,
        title: Sequence[str],
        names: Sequence[str],
        columns: Sequence[TextColumn],
        styles: Sequence[str],
    ) -> None:
        self.title = [visible(part, "") for part in title]
        self.names = [visible(name, "") for name in names]
        self.columns = [replace(column, head=visible(column.head, "")) for column in columns]
        self.styles = styles
        self._named = TextColumn("", self.names, left=True)

    def left_out(self, width: int) -> list[str]:
        """The headings of the columns that do not fit into a width."""
        shown = self._shown(width)
        return [column.head for column in self.columns if column not in shown]

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        whole = self._named.width + sum(_GAP + column.width for column in self.columns)
        return Measurement(whole, whole)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._lines(options.max_width):
            line.no_wrap = True
            line.overflow = "ignore"
            yield line

    def _is_stacked(self, width: int) -> bool:
        needed = [column.width + _GAP for column in self.columns if column.rank == ALWAYS]
        return self._named.width + sum(needed) > width

    def _shown(self, width: int) -> list[TextColumn]:
        room = width - (_INDENT - _GAP if self._is_stacked(width) else self._named.width)
        kept = []
        for column in sorted(self.columns, key=lambda column: column.rank):
            if column.rank == ALWAYS or column.width + _GAP <= room:
                room -= column.width + _GAP
                kept.append(column)
        return [column for column in self.columns if column in kept]

    def _lines(self, width: int) -> Iterator[Text]:
        title = " · ".join(self.title)
        for part in [title] if cell_len(title) <= width else self.title:
            yield Text(part, "bold")
        shown, stacked = self._shown(width), self._is_stacked(width)

        def numbers(cells: Sequence[str]) -> str:
            return (" " * _GAP).join(c.aligned(text) for c, text in zip(shown, cells, strict=True))

        beside = " " * (_INDENT if stacked else self._named.width + _GAP)
        yield Text(f"{beside}{numbers([column.head for column in shown])}".rstrip(), "bold")
        yield Text("─" * (len(beside) + cell_len(numbers([column.head for column in shown]))))
        for place, (name, style) in enumerate(zip(self.names, self.styles, strict=True)):
            cells = numbers([column.cells[place] for column in shown])
            if stacked:
                yield Text(name, style)
                yield Text(f"{beside}{cells}".rstrip(), style)
            else:
                yield Text(f"{self._named.aligned(name)}{' ' * _GAP}{cells}".rstrip(), style)
