"""``calsweep baseline``: the night that later ones are compared with, and the history."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from calibration.text import count
from sweeps.cli.arguments import Subparsers
from sweeps.errors import UserError
from sweeps.host.console import say

if TYPE_CHECKING:
    from sweeps.nightly.archive.baseline import Acceptance
    from sweeps.nightly.archive.nights import Nights


def add(commands: Subparsers) -> None:
    """Add the command."""
    baseline = commands.add_parser("baseline", help="the night that later ones are compared with")
    actions = baseline.add_subparsers(required=True, metavar="ACTION")
    show = actions.add_parser("show", help="which night it is, who accepted it, and why")
    add_suite(show)
    show.set_defaults(command=_show)
    accept = actions.add_parser("accept", help="make a complete night the baseline")
    add_suite(accept)
    accept.add_argument(
        "--night", metavar="DATE", help="its date (default: the last complete night)"
    )
    accept.add_argument("--reason", default="", metavar="TEXT", help="why; kept with the baseline")
    accept.set_defaults(command=_accept)
    export = actions.add_parser(
        "export", help="the nights' history as CSV, with a configuration for Apache Otava"
    )
    add_suite(export)
    export.add_argument("--out", type=Path, required=True, metavar="DIR", help="where to write it")
    export.set_defaults(command=_export)


def add_suite(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for a suite and the directory of its nights."""
    parser.add_argument(
        "suite",
        nargs="?",
        type=Path,
        metavar="SUITE",
        help="a YAML file, or the name of a bundled suite (default: nightly)",
    )
    parser.add_argument(
        "--nights",
        type=Path,
        default=Path("nights"),
        metavar="DIR",
        help="the directory of the nights (default: nights)",
    )


def nights_of(options: argparse.Namespace) -> Nights:
    """The nights of a suite, given by its file or by its name."""
    from sweeps.nightly.archive.nights import DEFAULT, Nights
    from sweeps.nightly.run.suite import load_suite

    given = options.suite
    if given is None and (options.nights / DEFAULT).is_dir():
        return Nights(options.nights, DEFAULT)
    if given is not None and len(given.parts) == 1 and (options.nights / given).is_dir():
        return Nights(options.nights, str(given))
    return Nights(options.nights, load_suite(given).name, str(given or ""))


def _show(options: argparse.Namespace, console: Console) -> int:
    from sweeps.nightly.archive.baseline import read_baseline
    from sweeps.nightly.archive.results import cells

    nights = nights_of(options)
    baseline = read_baseline(nights)
    if baseline is None:
        say(
            console,
            f"{nights.directory}: no baseline yet; the first complete night becomes it",
        )
        return 0
    about = baseline.about
    say(
        console,
        f"{about.suite}: the night of {about.night}, {len(baseline.results)} results of "
        f"{count(len(cells(baseline.results)), 'cell')}",
        f"accepted  {_accepted(about)}",
        f"digest    {about.digest}",
        f"made with {', '.join(f'{name} {value}' for name, value in about.identity.items())}",
    )
    for earlier in about.earlier:
        say(console, f"before    {earlier.night}, accepted {_accepted(earlier)}")
    return 0


def _accepted(about: Acceptance) -> str:
    return f"{about.accepted_at} by {about.accepted_by}: {about.reason or 'no reason given'}"


def _accept(options: argparse.Namespace, console: Console) -> int:
    from sweeps.nightly.archive.baseline import accept
    from sweeps.nightly.archive.nights import checked_night
    from sweeps.nightly.judge.wording import cell_name
    from sweeps.nightly.run.unattended import one_at_a_time

    nights = nights_of(options)
    night = None if options.night is None else checked_night(options.night)
    if not nights.directory.is_dir():
        raise UserError(f"{nights.directory}: no nights; run calsweep nightly first")
    with one_at_a_time(nights.directory):
        about, gone = accept(nights, night, options.reason.strip())
    say(console, f"{about.suite}: nights are now compared with that of {about.night}")
    if gone:
        say(
            console,
            "cells of the previous baseline that this one does not have:",
            *map(cell_name, gone),
        )
    return 0


def _export(options: argparse.Namespace, console: Console) -> int:
    from sweeps.nightly.archive.baseline import read_baseline
    from sweeps.nightly.archive.history import comparable, read_history
    from sweeps.nightly.report.otava import OTAVA_FILE, otava_files
    from sweeps.store.files import write_atomically

    nights = nights_of(options)
    baseline, history = read_baseline(nights), read_history(nights)
    if baseline is None or history.empty:
        raise UserError(f"{nights.directory}: no complete nights; run calsweep nightly")
    frame = comparable(history, "", baseline.reference)
    for name, content in otava_files(nights.suite, frame).items():
        write_atomically(options.out / name, content)
    say(
        console,
        f"{count(history['night'].nunique(), 'night')} written to {options.out}",
        f"in that directory: OTAVA_CONFIG={OTAVA_FILE} otava analyze {nights.suite}",
    )
    return 0
