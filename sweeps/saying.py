"""How commands speak: plain lines as they are, and tables that are not cut."""

from __future__ import annotations

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

WIDE = Console(width=1000)


def say(console: Console, *lines: str) -> None:
    """Print lines without markup, colour or wrapping."""
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def print_whole(console: Console, table: Table) -> None:
    """Print a table in the width it needs: a number cut in two is worse than a long line."""
    wide = type(console)(file=console.file, width=width_of(table))
    (console if wide.width <= console.width else wide).print(table, crop=False)


def width_of(table: Table) -> int:
    """How many columns of the screen a table takes with nothing cut or wrapped."""
    return Measurement.get(WIDE, WIDE.options, table).maximum
