"""The output of ``calsweep check``: the plan, its cost, and every setting with its unit."""

from __future__ import annotations

import os

from rich.console import Console
from rich.table import Table
from rich.text import Text

from calibration.text import count
from sweeps.cli.listings import describe_domain
from sweeps.engine.cell import Cell
from sweeps.engine.dry_run import try_rows
from sweeps.engine.estimate import estimate
from sweeps.engine.plan import Options, Plan
from sweeps.host.console import print_whole, say
from sweeps.spec import LoadedSpec
from sweeps.spec.settings import settings
from sweeps.store import Store
from sweeps.sweep import extension


def print_plan(loaded: LoadedSpec, store: Store, console: Console) -> None:
    """Print every cell's trials and their progress, the expected time, and the settings."""
    added = extension(store, loaded.spec.name)
    loaded = added.applied(loaded)
    spec = loaded.spec
    options = Options(persist=False, extra=added.trials)
    plan = Plan(loaded, store, options)
    plan.replay()
    cost = estimate(loaded)
    table = Table(title=f"{spec.name}: {count(plan.total, 'trial')}", title_justify="left")
    for heading in ("dataset", "row", "search", "confirm", "done", "s/trial"):
        table.add_column(heading)
    for place, cell in plan.cells.items():
        table.add_row(
            Text(cell.dataset),
            Text(cell.row),
            _budget(cell, spec.search.time),
            str(spec.confirm_seeds),
            str(cell.done),
            f"{cost[place]:.2g}",
        )
    print_whole(console, table)
    workers = max(1, int((os.cpu_count() or 1) / spec.resources.cpu))
    left = sum(_seconds_left(plan, cell, cost[place]) for place, cell in plan.cells.items())
    say(
        console,
        f"about {_clock(left / workers)} of training at most with {count(workers, 'trial')} at "
        "once here (s/trial: all epochs; early stopping shortens it, calibrators are not counted)",
    )
    searches = {
        cell.row: _searched(cell) for cell in plan.cells.values() if cell.study.space.searched
    }
    if searches:
        say(console, "", "searched", *(f"{row}: {space}" for row, space in searches.items()), "")
    shown = Table(box=None, pad_edge=False)
    shown.add_column("setting", no_wrap=True)  # a name that is cut cannot be copied to the spec
    shown.add_column("value")
    shown.add_column("what it is")
    for setting in settings(spec, loaded.written):
        value = f"{setting.value} (default)" if setting.default else setting.value
        about = f"{setting.unit}: {setting.description}" if setting.unit else setting.description
        shown.add_row(Text(setting.field), Text(value), Text(about))
    console.print(shown)


def print_dry_run(loaded: LoadedSpec, console: Console) -> int:
    """Try every row and print the outcome; returns 1 if one failed."""
    failed = 0
    for tried in try_rows(loaded):
        outcome = tried.failure or f"loss {tried.loss:.3f} after {tried.seconds:.1f} s"
        say(console, f"{tried.dataset}  {tried.row}: {outcome}")
        for concern in tried.concerns:
            say(console, f"{tried.dataset}  {tried.row}: warning: {concern}")
        failed += bool(tried.failure)
    return 1 if failed else 0


def _budget(cell: Cell, time: float | None) -> str:
    budget = cell.study.budget
    limits = [str(budget)] if budget else []
    return " or ".join(limits + ([f"{time:g} s"] if time is not None and budget != 0 else []))


def _searched(cell: Cell) -> str:
    return ", ".join(f"{n} {describe_domain(d)}" for n, d in cell.study.space.searched.items())


def _seconds_left(plan: Plan, cell: Cell, per_trial: float) -> float:
    if cell.study.budget is None:
        assert plan.spec.search.time is not None
        return plan.spec.search.time + plan.spec.confirm_seeds * per_trial
    return (cell.total - cell.done) * per_trial


def _clock(seconds: float) -> str:
    if seconds != seconds:
        return "an unknown time"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
