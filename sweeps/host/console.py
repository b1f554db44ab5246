"""How commands speak: plain lines as they are, and tables that are not cut.

Names, reasons and messages are text that others wrote. Nothing in it is markup, and its
control characters are shown, not sent.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from calibration.text import visible

__all__ = ["Terminal", "complain", "print_whole", "say", "say_paragraph", "visible", "width_of"]


class Terminal(Console):
    """A console without markup, emoji codes and highlighting, through which no escape passes."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """As a console does, with the control characters of every text shown."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))

    def render_str(self, text: str, **options: Any) -> Text:
        """As a console does; here too, so that room is made for what will be shown."""
        return super().render_str(visible(text), **options)

    def on_broken_pipe(self) -> None:
        """Say what happened: rich would end the process as if it were interrupted."""
        raise BrokenPipeError


WIDE = Terminal(width=1000)


def say(console: Console, *lines: str) -> None:
    """Print lines without markup, colour or wrapping, control characters as escapes."""
    for line in lines:
        console.print(visible(line), soft_wrap=True, highlight=False, markup=False, emoji=False)


def say_paragraph(console: Console, text: str) -> None:
    """Print sentences and an empty line; on a screen, lines break between words."""
    shown = Text(visible(text))
    console.print(shown, soft_wrap=not console.is_terminal, highlight=False)
    console.print()


def complain(message: str) -> None:
    """Say on standard error what is wrong, in one message."""
    print(f"calsweep: {visible(message)}", file=sys.stderr, flush=True)


def print_whole(console: Console, table: Table) -> None:
    """Print a table in the width it needs: a number cut in two is worse than a long line."""
    width = width_of(table)
    plain = isinstance(console, Terminal) and width <= console.width
    (console if plain else Terminal(file=console.file, width=width)).print(table, crop=False)


def width_of(table: RenderableType) -> int:
    """How many columns of the screen a table takes with nothing cut or wrapped."""
    return Measurement.get(WIDE, WIDE.options, table).maximum
