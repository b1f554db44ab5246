"""Messages of ``calsweep nightly`` to people who are not at the terminal."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from sweeps.cli.baseline import nights_of
from sweeps.errors import UserError
from sweeps.host.console import say
from sweeps.host.secrets import masked

if TYPE_CHECKING:
    from sweeps.nightly.judge.verdict import Verdict
    from sweeps.nightly.report.message import Message
    from sweeps.nightly.report.webhook import Webhook

NIGHTS_URL = "CALSWEEP_NIGHTS_URL"
NIGHT_FAILED = "incomplete", "The night ended without a verdict"
WATCH_FAILED = "missing", "The nights cannot be watched"


def webhook_of(options: argparse.Namespace) -> Webhook | None:
    """The webhook that the command or its environment names. Raises ``UserError``."""
    from sweeps.nightly.report.webhook import VARIABLE, read_webhook

    given = options.webhook or os.environ.get(VARIABLE, "")
    return read_webhook(given, "--webhook" if options.webhook else VARIABLE) if given else None


def message_of(verdict: Verdict, report: Path, options: argparse.Namespace) -> Message:
    """The verdict with links that work elsewhere: a path is valid only on this machine."""
    from sweeps.nightly.report.message import Message

    base = nights_url(options).rstrip("/")
    links = {"report": f"{base}/{verdict.suite}/{verdict.night}/report.html"} if base else {}
    links |= {"MLflow": verdict.link} if verdict.link else {}
    links |= _workflow()
    return Message(
        suite=verdict.suite,
        night=verdict.night,
        verdict=verdict.overall,
        sentences=verdict.sentences,
        ongoing=verdict.ongoing,
        report=str(report.resolve()),
        links=links,
    )


def nights_url(options: argparse.Namespace) -> str:
    """Where the nights are served, if anywhere. Raises ``UserError`` if that is not a URL."""
    from sweeps.nightly.report.webhook import check_url

    url = str(options.nights_url or os.environ.get(NIGHTS_URL, ""))
    if url:
        check_url(url, "--nights-url" if options.nights_url else NIGHTS_URL)
    return url


def _workflow() -> dict[str, str]:
    """A link to the page of the GitHub workflow's run, whose summary is the report."""
    names = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")
    server, repository, run = (os.environ.get(name, "") for name in names)
    return {"workflow": f"{server}/{repository}/actions/runs/{run}"} if run else {}


def watch_for(options: argparse.Namespace, console: Console) -> int:
    """``--watch``: 0 if a night has arrived, or 1, which is reported to the webhook.

    So is an error: nights that cannot be found may be on a disk that is gone.
    """
    from sweeps.nightly.archive.nights import DEFAULT
    from sweeps.nightly.report.message import Message
    from sweeps.nightly.report.webhook import report_to
    from sweeps.nightly.watch import WITHIN_SECONDS, watch

    if options.print:
        raise UserError(
            "--watch with --print: only nights can be printed; schedule --watch with a line of "
            "your own, as in cluster/schedules/README.md"
        )
    webhook = webhook_of(options)
    name = DEFAULT if options.suite is None else options.suite.stem
    with alarm(webhook, name, "", console, WATCH_FAILED):
        nights = nights_of(options)
        found = watch(nights, options.within or WITHIN_SECONDS)
    say(console, found.words)
    if found.arrived:
        return 0
    message = Message(nights.suite, "", "missing", [found.words])
    problem = report_to(webhook, message) if webhook else ""
    say(console, *([problem] if problem else []))
    return 1


@contextlib.contextmanager
def alarm(
    webhook: Webhook | None,
    suite: str,
    date: str,
    console: Console,
    failure: tuple[str, str] = NIGHT_FAILED,
) -> Iterator[None]:
    """Report a night that dies or cannot begin to the webhook: no one may be watching it.

    ``failure`` is the verdict to report then, and the words before the reason.
    """
    from sweeps.nightly.report.message import Message
    from sweeps.nightly.report.webhook import report_to

    try:
        yield
    except BaseException as error:
        if webhook:
            reason = masked(" ".join(str(error).split())) or type(error).__name__
            verdict, what = failure
            message = Message(suite, date, verdict, [f"{what}: {reason}"], links=_workflow())
            problem = report_to(webhook, message)
            say(console, *([problem] if problem else []))
        raise
