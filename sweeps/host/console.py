"""Console output of the commands: plain lines, and tables that are never truncated.

Names, reasons and messages are untrusted text. None of it is interpreted as markup, and its
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
    """A console without markup, emoji codes and highlighting that lets no escape through."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Render with the control characters of every text made visible."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))

    def render_str(self, text: str, **options: Any) -> Text:
        """Make control characters visible here too, so that widths are measured correctly."""
        return super().render_str(visible(text), **options)

    def on_broken_pipe(self) -> None:
        """Raise the error itself: rich would exit as if the process were interrupted."""
        raise BrokenPipeError


WIDE = Terminal(width=1000)


def say(console: Console, *lines: str) -> None:
    """Print lines without markup, colour or wrapping, control characters as escapes."""
    for line in lines:
        console.print(visible(line), soft_wrap=True, highlight=False, markup=False, emoji=False)


def say_paragraph(console: Console, text: str) -> None:
    """Print sentences and an empty line; on a terminal, lines break between words."""
    shown = Text(visible(text))
    console.print(shown, soft_wrap=not console.is_terminal, highlight=False)
    console.print()


def complain(message: str) -> None:
    """Print one error message to standard error."""
    print(f"calsweep: {visible(message)}", file=sys.stderr, flush=True)


def print_whole(console: Console, table: Table) -> None:
    """Print a table at full width: a truncated number is worse than a long line."""
    width = width_of(table)
    plain = isinstance(console, Terminal) and width <= console.width
    (console if plain else Terminal(file=console.file, width=width)).print(table, crop=False)


def width_of(table: RenderableType) -> int:
    """The width in characters that a table needs without truncation or wrapping."""
    return Measurement.get(WIDE, WIDE.options, table).maximum
