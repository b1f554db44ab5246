"""The ``calsweep`` command.

Exit codes: 0 fine; 1 trials or calibrators failed, a night is worse or incomplete, the store cannot
be used, or Ray or MLflow is lost; 2 bad input, or a sweep that another process is running; 70 an
internal error (``sweeps.cli.crash``); 130 and 143 interrupted. Other packages add subcommands
through the entry-point group ``calsweep.commands``: a callable that receives the subparsers.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import io
import logging
import os
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from types import FrameType
from typing import Any

from sweeps.cli import (
    baseline,
    check,
    compare,
    completion,
    export,
    init,
    listings,
    nightly,
    posthoc,
    report,
    run,
    status,
    ui,
)
from sweeps.cli.arguments import Command, Subparsers
from sweeps.cli.crash import installed_version, report_crash
from sweeps.cli.paths import check_places
from sweeps.errors import UserError
from sweeps.host.console import Terminal, complain, visible
from sweeps.host.secrets import masked, without_secrets

_REFUSALS = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.EMFILE),
    *(errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG),
}
"""Errors of the machine, which are not calsweep's fault."""
_COMMANDS = (
    *(init, check, run, status, report, compare, ui, export, posthoc, nightly, baseline),
    *(listings, completion),
)
"""In the order of the help."""
INTERRUPTED = (130, 143)
"""By SIGINT, by SIGTERM."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; every error is one message on standard error."""
    code = _main(list(sys.argv[1:] if arguments is None else arguments))
    if arguments is None and code in INTERRUPTED:
        # At once: Ray's threads, whose shutdown a second Ctrl-C has interrupted, would hold the
        # process for a minute and exit with a code of their own.
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
    if arguments is None:
        # Everything is reported: Ctrl-C while the interpreter ends must not turn it into a failure.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code


def _main(words: Sequence[str]) -> int:
    options = None
    _terminated.clear()
    try:
        _prepare()
        parser = _parser()
        completion.answer(parser)
        options = parser.parse_args(words)
        return _run(options, words)
    except KeyboardInterrupt:  # one more, while the first was being handled
        return INTERRUPTED[0]
    except Exception as error:
        return report_crash(error, words, options)


def _prepare() -> None:
    with contextlib.suppress(OSError):  # the working directory may be gone
        if str(Path.cwd()) not in sys.path:  # so that a user's own module:Name is found
            sys.path.insert(0, str(Path.cwd()))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a character the terminal lacks is not an error
            stream.reconfigure(errors="replace")
    handler = logging.StreamHandler()
    handler.setFormatter(_VisibleFormatter("calsweep: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.ERROR)
    logging.getLogger("calsweep").setLevel(logging.WARNING)
    warnings.formatwarning = _visible_warning


class _VisibleFormatter(logging.Formatter):
    """Shows control characters: what is logged quotes names, files and other software."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


_FORMAT_WARNING = warnings.formatwarning


def _visible_warning(*about: Any, **more: Any) -> str:
    """The same for a warning, which may quote the name of a damaged file."""
    return visible(_FORMAT_WARNING(*about, **more))


def _run(options: argparse.Namespace, words: Sequence[str]) -> int:
    command: Command = options.command
    try:
        signal.signal(signal.SIGTERM, _terminate)
        check_places(options)
        return command(options, Terminal())
    except UserError as error:
        complain(str(error))
        return error.exit_code
    except BrokenPipeError:  # the reader closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno not in _REFUSALS:
            raise
        complain(f"{error.filename or 'a file'}: {error.strerror}")
        return 1
    except (KeyboardInterrupt, SystemExit) as stop:  # during startup, Ray turns it into the latter
        again = shlex.join(masked(word) for word in ["calsweep", *words])
        complain(f"stopped; nothing is lost; to continue: {again}")
        return INTERRUPTED[_terminated.is_set() or isinstance(stop, SystemExit)]


_terminated = threading.Event()


def _terminate(number: int, frame: FrameType | None) -> None:
    """SIGTERM: exit as on Ctrl-C. Ray passes on the exception, but not its type.

    Only the first one: a scheduler that signals every process of a job, and processes that
    forward its signal, must not interrupt the orderly exit. A process that hangs is killed anyway.
    """
    if _terminated.is_set():
        return
    _terminated.set()
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="calsweep", description="Which calibration method, at which settings, at what cost?"
    )
    parser.add_argument("--version", action="version", version=f"calsweep {installed_version()}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for module in _COMMANDS:
        module.add(subparsers)
    _add_plugins(subparsers)
    _describe(parser)
    return parser


def _describe(parser: argparse.ArgumentParser) -> None:
    """Let the help of every command begin with what the list of commands says about it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for line in action._choices_actions:
                command = action.choices[line.dest]
                about = f"{line.help[:1].upper()}{line.help[1:]}." if line.help else ""
                command.description = f"{about} {command.description or ''}".strip()
                _describe(command)


def _add_plugins(subparsers: Subparsers) -> None:
    """Add the commands of other packages; a broken one must not affect ours."""
    for point in entry_points(group="calsweep.commands"):
        try:
            point.load()(subparsers)
        except (Exception, SystemExit) as error:
            package = f" of the package {point.dist.name}" if point.dist else ""
            complain(
                f"the plug-in {point.name!r}{package} is skipped, because it fails: "
                + without_secrets(f"{type(error).__name__}: {error}")
            )
