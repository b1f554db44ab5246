"""``calsweep nightly``."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console

from calibration.text import count
from sweeps.cli.arguments import Subparsers, add_status_port, host_and_port, status_server
from sweeps.cli.baseline import add_suite
from sweeps.cli.early_access import check_server
from sweeps.cli.night_messages import alarm, message_of, nights_url, watch_for, webhook_of
from sweeps.errors import UserError
from sweeps.host.console import complain, say
from sweeps.host.secrets import masked

if TYPE_CHECKING:
    from sweeps.nightly.judge.verdict import Verdict
    from sweeps.nightly.report.webhook import Webhook
    from sweeps.nightly.run.night import Train
    from sweeps.nightly.run.suite import LoadedSuite
    from sweeps.spec import LoadedSpec
    from sweeps.status.server import StatusServer
    from sweeps.store import Store


def add(commands: Subparsers) -> None:
    """Add the command."""
    nightly = commands.add_parser(
        "nightly",
        help="run a suite, compare it with the baseline, judge and report it",
        description="Exit code 0: identical to the baseline or no regression shown; 1: regression "
        "or incomplete; 2: bad input. After every verdict the URL in CALSWEEP_PING is requested, "
        "if it is set: a dead man's switch.",
    )
    add_suite(nightly)
    nightly.add_argument(
        "--night", metavar="DATE", help="its date, e.g. 2026-11-16 (default: today)"
    )
    nightly.add_argument(
        "--tracking",
        metavar="URI",
        help="MLflow (default: $MLFLOW_TRACKING_URI, or sqlite beside the nights)",
    )
    nightly.add_argument(
        "--address", help="a running Ray cluster (default: Ray on this machine)", metavar="ADDRESS"
    )
    nightly.add_argument(
        "--webhook",
        metavar="[slack:|teams:]URL",
        help="POST the verdict there, as JSON or in the format of Slack or Teams; better set "
        "CALSWEEP_WEBHOOK, which other users cannot see",
    )
    nightly.add_argument(
        "--nights-url",
        metavar="URL",
        help="where a web server serves the directory of --nights: messages then link to the "
        "report (or CALSWEEP_NIGHTS_URL)",
    )
    nightly.add_argument(
        "--watch",
        action="store_true",
        help="do not run: look once; if there is no recent night, exit with 1 and notify the "
        "webhook",
    )
    nightly.add_argument(
        "--within",
        type=_duration,
        metavar="TIME",
        help="with --watch: what counts as recent (default: 26h)",
    )
    nightly.add_argument(
        "--time-limit",
        type=_duration,
        metavar="TIME",
        help="e.g. 40m; unfinished sweeps are then incomplete (default: the suite's)",
    )
    nightly.add_argument(
        "--print",
        choices=("cron", "systemd"),
        help="do not run: print the crontab line or the units that run this every night",
    )
    nightly.add_argument(
        "--at", type=_clock_time, metavar="HH:MM", help="with --print: when to run (default: 02:00)"
    )
    add_status_port(nightly)
    nightly.set_defaults(command=_nightly)


def _duration(text: str) -> float:
    from sweeps.search.fields import seconds

    try:
        found = float(seconds(text if not text.replace(".", "", 1).isdecimal() else float(text)))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"found {text!r}; {error}") from None
    if not 0 < found <= 1e9:
        raise argparse.ArgumentTypeError(f"found {text!r}; write e.g. 40m")
    return found


def _clock_time(text: str) -> datetime.time:
    try:
        return datetime.datetime.strptime(text, "%H:%M").time()
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"found {text!r}; write hours and minutes, from 00:00 to 23:59"
        ) from None


def _nightly(options: argparse.Namespace, console: Console) -> int:
    from sweeps.nightly.archive.nights import checked_night
    from sweeps.nightly.run.suite import load_suite, suite_path
    from sweeps.spec.tracking_uri import check_tracking_option

    if options.at and not options.print:
        raise UserError("--at goes with --print cron or --print systemd")
    if options.within and not options.watch:
        raise UserError("--within goes with --watch")
    if options.watch:
        return watch_for(options, console)
    if options.print:
        return _print_schedule(options, load_suite(options.suite), console)
    check_tracking_option(options.tracking)
    contacts = _contacts(options)
    date, path = checked_night(options.night), suite_path(options.suite)
    with _terminations() as terminated:
        try:
            with alarm(contacts.webhook, path.stem, date, console):
                given = options.tracking or os.environ.get("MLFLOW_TRACKING_URI")
                if given:
                    check_server(given, path)
                suite = load_suite(options.suite)
            return _run(options, suite, date, contacts, console)
        except BrokenPipeError as error:
            # Nothing here writes to the terminal itself: some other pipe or socket broke, which
            # the command would otherwise take for a reader that closed the pipe.
            _complain(f"the night ended without a verdict: {error or 'a pipe broke'}")
            return 1
        except (
            KeyboardInterrupt,
            SystemExit,
        ) as stop:  # during startup, Ray raises the latter
            # The command line is not repeated: it may contain the webhook's address.
            _complain("stopped; nothing is lost; the same command continues")
            return 143 if terminated.is_set() or isinstance(stop, SystemExit) else 130


@contextlib.contextmanager
def _terminations() -> Iterator[threading.Event]:
    """An event set by SIGTERM, whose handler still runs: the exception alone does not show it."""
    terminated = threading.Event()
    before = signal.getsignal(signal.SIGTERM)

    def note(number: int, frame: FrameType | None) -> None:
        terminated.set()
        if callable(before):
            before(number, frame)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, note)
    try:
        yield terminated
    finally:
        signal.signal(signal.SIGTERM, before)


def _complain(words: str) -> None:
    with contextlib.suppress(OSError):  # the reader may be gone
        complain(words)


class _Contacts(NamedTuple):
    """Whom to tell about a night: addresses that were checked, or nothing."""

    webhook: Webhook | None
    ping: str


def _contacts(options: argparse.Namespace) -> _Contacts:
    """Raises ``UserError`` for what is not an address."""
    from sweeps.nightly.report.webhook import PING_VARIABLE, check_url

    nights_url(options)
    ping = os.environ.get(PING_VARIABLE, "")
    if ping:
        check_url(ping, PING_VARIABLE)
    return _Contacts(webhook_of(options), ping)


def _run(
    options: argparse.Namespace,
    suite: LoadedSuite,
    date: str,
    contacts: _Contacts,
    console: Console,
) -> int:
    from sweeps.nightly.archive.nights import Nights
    from sweeps.nightly.report.webhook import ping, report_to
    from sweeps.nightly.run.tracking_uri import tracking_uri
    from sweeps.nightly.run.unattended import logged, one_at_a_time
    from sweeps.tracking.mlflow.access import check_access

    nights = Nights(options.nights, suite.name, str(options.suite or ""))
    with contextlib.ExitStack() as held:
        with alarm(contacts.webhook, suite.name, date, console):
            uri = tracking_uri(nights, options.tracking)
            check_access(uri, suite.name)
            from sweeps.nightly.run.night import Night, run_night  # seconds to import

            held.enter_context(one_at_a_time(nights.directory))
            held.enter_context(logged(nights.directory))
            status = held.enter_context(status_server(options, console))
            # Created now: the output has just become a file instead of a terminal.
            plain = Console(file=sys.stdout, width=console.width)
            say(plain, f"{suite.name} {date} · {count(len(suite.sweeps), 'sweep')}", *suite.notes)
            night = Night(
                suite=suite,
                nights=nights,
                date=date,
                tell=lambda words: say(plain, words),
                train=_trainer(plain, uri, options.address, status),
                tracking=uri,
                limit=options.time_limit or suite.suite.time_limit,
                address=options.address,
            )
            verdict = run_night(night)
        _print(verdict, nights.place(date), plain)
        problems = []
        if contacts.webhook:
            message = message_of(verdict, nights.place(date) / "report.html", options)
            problems.append(report_to(contacts.webhook, message))
        if contacts.ping:
            problems.append(ping(contacts.ping))
        say(plain, *filter(None, problems))
    return verdict.exit_code


def _trainer(console: Console, uri: str, address: str | None, status: StatusServer | None) -> Train:
    from sweeps.ray_backend.connection import Cluster
    from sweeps.runner import run_sweep

    def train(loaded: LoadedSpec, store: Store, parent: str | None, again: bool) -> None:
        say(console, "", loaded.spec.name)
        outcome = run_sweep(
            loaded,
            store,
            console=console,
            tracking_uri=uri,
            cluster=Cluster(address),
            retry_failed=again,
            parent_run=parent,
            paced=True,
            status=status,
        )
        plan = outcome.plan
        say(console, f"{plan.done} of {count(plan.total, 'trial')} done, {plan.failed} failed")
        if outcome.unpublished or outcome.tracking_error:
            say(
                console,
                f"MLflow could not be reached at {masked(uri)} ({outcome.tracking_error}); the "
                "records are safe; run the same command again to publish them",
            )

    return train


def _print(verdict: Verdict, place: Path, console: Console) -> None:
    from sweeps.nightly.report.markdown import HEADLINES

    say(console, "", f"{verdict.suite} {verdict.night}: {HEADLINES[verdict.overall]}", "")
    say(console, *verdict.sentences, "")
    say(console, f"report    {place / 'report.html'}", f"verdict   {place / 'verdict.json'}")
    if verdict.exit_code and verdict.baseline is not None and verdict.acceptable:
        say(console, f"to accept this as the new baseline: {verdict.accept}")


def _print_schedule(options: argparse.Namespace, suite: LoadedSuite, console: Console) -> int:
    from sweeps.nightly.schedule import Schedule, crontab, systemd

    if options.webhook:
        raise UserError(
            "--webhook with --print: others could read its address there; leave it out, and set "
            "CALSWEEP_WEBHOOK in the credentials file that is printed"
        )
    program = Path(sys.executable).with_name("calsweep")
    command = [str(program)] if program.exists() else [sys.executable, "-m", "sweeps.cli"]
    command += ["nightly"]
    command += [str(suite.path.resolve())] if options.suite is not None else []
    command += ["--nights", str(options.nights.absolute())]
    command += ["--tracking", options.tracking] if options.tracking else []
    command += ["--address", options.address] if options.address else []
    command += ["--time-limit", f"{options.time_limit:g}s"] if options.time_limit else []
    command += ["--nights-url", nights_url(options)] if options.nights_url else []
    command += ["--status-port", host_and_port(options)] if options.status_port else []
    schedule = Schedule(
        suite=suite.name,
        command=tuple(command),
        directory=Path.cwd(),
        at=options.at or datetime.time(hour=2),
        time_limit=options.time_limit or suite.suite.time_limit,
        config=Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser(),
    )
    text = {"cron": crontab, "systemd": systemd}[options.print](schedule)
    say(console, *text.splitlines())
    return 0
