"""The progress of a running sweep: a live table, or plain lines without a terminal."""

from __future__ import annotations

import time
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from calibration.metrics import METRICS
from calibration.text import count
from sweeps.engine.cell import Cell, PlannedTrial
from sweeps.engine.plan import Plan
from sweeps.host.console import say, visible

LINE_EVERY_SECONDS = 5.0
WIDE_ENOUGH_FOR_BARS = 100


class Progress:
    """Shows a plan's state; ``update`` is cheap and may be called at every event."""

    def __init__(self, plan: Plan, console: Console) -> None:
        self.plan = plan
        self.console = console
        self._start = time.monotonic()
        self._at_start = plan.done
        self._live: Live | None = None
        self._last_line = 0.0

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(
                get_renderable=self._table,
                console=self.console,
                refresh_per_second=4,
                transient=True,
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, trial: PlannedTrial) -> None:
        """A trial has ended; without a terminal a line is printed now and then."""
        now = time.monotonic()
        if self._live is not None:
            return
        if now - self._last_line < LINE_EVERY_SECONDS and not self.plan.finished:
            return
        self._last_line = now
        cell = self.plan.cells[trial.cell]
        say(
            self.console,
            f"{self.plan.done}/{self.plan.total} done, {self.plan.failed} failed, "
            f"{self._time_left()} | {cell.dataset} {cell.row} {cell.done}/{cell.total} "
            f"{describe_best(self.plan, cell)}",
        )

    def _time_left(self) -> str:
        new = self.plan.done - self._at_start
        if new == 0:
            return "time left unknown"
        seconds = (time.monotonic() - self._start) / new * (self.plan.total - self.plan.done)
        minutes, rest = divmod(int(seconds), 60)
        return f"{minutes}:{rest:02d} left"

    def _table(self) -> RenderableType:
        # One line for every row, or a long table would not fit on the screen: where space is short,
        # the bar goes first, then the end of the line; names stay whole.
        with_bar = self.console.width >= WIDE_ENOUGH_FOR_BARS
        table = Table(box=None, pad_edge=False)
        for heading in ("dataset", "row", *[""] * with_bar, "trials", "running", "failed"):
            table.add_column(heading, no_wrap=True)
        table.add_column("best so far")
        for cell in self.plan.cells.values():
            bar = ProgressBar(total=cell.total, completed=cell.done, width=16)
            best = Text(visible(describe_best(self.plan, cell)), no_wrap=True, overflow="ellipsis")
            table.add_row(
                Text(visible(cell.dataset)),
                Text(visible(cell.row)),
                *[bar] * with_bar,
                f"{cell.done}/{cell.total}",
                str(cell.running or ""),
                Text(str(cell.failed or ""), style="red"),
                best,
            )
        done, total = self.plan.done, self.plan.total
        table.caption = f"{done}/{count(total, 'trial')}, {self._time_left()}"
        table.caption_justify = "left"
        return table


def describe_best(plan: Plan, cell: Cell) -> str:
    """The best validation objective so far and the searched hyperparameters that gave it."""
    number = cell.study.best()
    if number is None:
        return ""
    values = cell.study.values(number) or ()
    shown = [
        f"validation {METRICS.title(objective.metric)} {value:.4f}"
        for objective, value in zip(plan.spec.search.objective, values, strict=True)
    ]
    hyperparameters = plan.searched(plan.search_trial(cell, number)).items()
    return " ".join([*shown, "", *(f"{name}={format_value(v)}" for name, v in hyperparameters)])


def format_value(value: object) -> str:
    """A number with three significant digits; anything else as it is."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)
