"""``calsweep report``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from sweeps.cli.arguments import Subparsers, add_store, add_sweep, check_place, opened
from sweeps.errors import UserError
from sweeps.host.console import say, say_paragraph

if TYPE_CHECKING:
    from sweeps.sweep import Sweep

ABOUT_CHOICES = ("new_data", "test_set")
FORMATS = ("html", "markdown", "latex", "csv", "parquet")


def add(commands: Subparsers) -> None:
    """Add the command."""
    report = commands.add_parser("report", help="make a sweep's report, or print its tables")
    add_sweep(report)
    report.add_argument("--open", action="store_true", help="open the page in the browser")
    report.add_argument(
        "--format",
        choices=FORMATS,
        default="html",
        help="html: all files in the store; markdown, latex: the leaderboard; csv, parquet: "
        "every result (default: html)",
    )
    report.add_argument(
        "--baseline",
        metavar="ROW",
        help="what the rows are compared with: a row (its chosen calibrator against theirs, and "
        "both without one), or exactly one row with one calibrator, "
        'e.g. "focal + temperature" (default: standard)',
    )
    report.add_argument(
        "--about",
        choices=ABOUT_CHOICES,
        default=ABOUT_CHOICES[0],
        help="what intervals and verdicts are about: new test rows and new seeds, or new seeds on "
        "these very test rows (default: new_data)",
    )
    report.add_argument("--out", type=Path, metavar="FILE", help="write only this file")
    add_store(report)
    report.set_defaults(command=_report)


def _report(options: argparse.Namespace, console: Console) -> int:
    if options.open and options.format != "html":
        raise UserError(f"--open shows the page; leave it out with --format {options.format}")
    if options.format == "parquet" and options.out is None:
        raise UserError("--format parquet is not text for a screen; add --out FILE")
    if options.out is not None:
        check_place("--out", options.out)
    sweep = opened(options)
    sweep.require_results()
    if options.format == "html":
        return _page(options, sweep, console)
    content = _content(options, sweep)
    if options.out is not None:
        _write(options.out, content)
        say(console, f"{options.format:<9} {options.out}")
    else:
        sys.stdout.buffer.write(content)
    return 0


def _page(options: argparse.Namespace, sweep: Sweep, console: Console) -> int:
    from calibration.threads import threads
    from sweeps.report.headline import across, headlines, looks, outdated, recommended
    from sweeps.report.write import write_report

    files: dict[str, bytes] = {}
    write = None if options.out is None else files.__setitem__
    with threads(1):
        written = write_report(sweep.records, sweep.store, options.baseline, write, options.about)
    analysis = written.analysis
    sentences = [
        *recommended(analysis),
        *map(str, headlines(sweep.records, analysis).values()),
        across(analysis),
    ]
    sentences += [outdated(sweep.records, written.analysis), looks(sweep.records)]
    for sentence in filter(None, sentences):
        say_paragraph(console, sentence)
    place = sweep.store.location(sweep.name, "report.html")
    if "report.html" in written.failures:
        return 1
    if options.out is not None:
        _write(options.out, files["report.html"])
        place = str(options.out)
    say(console, f"report    {place}")
    if options.open:
        _show(place, console)
    return 1 if written.failures else 0


def _content(options: argparse.Namespace, sweep: Sweep) -> bytes:
    from sweeps.analysis import analyse
    from sweeps.report import exports
    from sweeps.report.csv_table import csv
    from sweeps.report.write import parquet

    analysis = analyse(sweep.records, options.baseline, options.about)
    if options.format == "markdown":
        return exports.markdown(analysis).encode()
    if options.format == "latex":
        return exports.latex(analysis).encode()
    return csv(analysis.results) if options.format == "csv" else parquet(analysis.results)


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UserError(f"--out {path}: {error.strerror}") from None


def _show(place: str, console: Console) -> None:
    import webbrowser

    path = Path(place)
    if not path.exists():
        raise UserError(f"--open: {place} is not on this machine; add --out FILE")
    if not webbrowser.open(path.resolve().as_uri()):
        say(console, "no browser could be started: open that file yourself")
