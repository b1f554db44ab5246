"""``calsweep status`` and ``calsweep show``."""

from __future__ import annotations

import argparse

from rich.console import Console

from calibration.text import count
from sweeps.cli.arguments import Subparsers, add_store, add_sweep, opened
from sweeps.host.console import say


def add(commands: Subparsers) -> None:
    """Add the commands."""
    status = commands.add_parser("status", help="the state of a sweep, while it runs or afterwards")
    add_sweep(status, optional=True)
    status.add_argument("--trials", action="store_true", help="one line per trial, with its key")
    status.set_defaults(command=_status)
    show = commands.add_parser("show", help="one trial in full: settings, curve, metrics, files")
    show.add_argument("trial", metavar="TRIAL", help="its key, or the first digits of its key")
    show.set_defaults(command=_show)
    for command in (status, show):
        add_store(command)


def _status(options: argparse.Namespace, console: Console) -> int:
    from sweeps.cli.status_view import print_status, state
    from sweeps.spec import SpecError
    from sweeps.store import Store
    from sweeps.sweep import open_sweep, sweep_names

    if options.sweep is not None:
        if waiting := _not_begun(options):
            say(console, waiting)
            return 0
        print_status(opened(options), console, every_trial=options.trials)
        return 0
    store = Store(options.store)
    names = sweep_names(store)
    for name in names:
        try:
            sweep = open_sweep(name, store)
        except SpecError as error:  # an unreadable spec must not hide the others
            say(console, f"{name}: {error}")
            continue
        if options.trials:
            print_status(sweep, console, every_trial=True)
            continue
        say(
            console,
            f"{name}: {state(sweep)}; {sweep.plan.done} of {count(sweep.plan.total, 'trial')} done",
        )
    if not names:
        say(console, f"{store.root}: no sweep yet; calsweep run SPEC")
    return 0


def _not_begun(options: argparse.Namespace) -> str:
    """The state of a sweep that is in Slurm's queue and has no directory yet; else ""."""
    from sweeps.cli.status_view import slurm_jobs
    from sweeps.host import slurm
    from sweeps.store import Store
    from sweeps.sweep import sweep_names

    if not slurm.is_there():
        return ""
    store, name = Store(options.store), str(options.sweep)
    if "/" in name or name.endswith((".yaml", ".yml")) or name in sweep_names(store):
        return ""
    found = slurm_jobs(name, store)
    return f"{name}: not started; {found[0].describe()}" if found else ""


def _show(options: argparse.Namespace, console: Console) -> int:
    from sweeps.cli.trial_view import find_trial, print_trial
    from sweeps.store import Store

    store = Store(options.store)
    print_trial(store, find_trial(store, options.trial), console)
    return 0
