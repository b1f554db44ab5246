"""The ``calsweep`` command.

Exit codes: 0 fine, 1 trials or post-hoc maps failed or the store cannot be used, 2 bad input
(or a sweep that another process is running), 130 and 143 interrupted. Other packages add
subcommands through the entry-point group ``calsweep.commands``: a callable that is given the
subparsers.
"""

from __future__ import annotations

import argparse
import io
import logging
import os
import shlex
import signal
import sys
import threading
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from types import FrameType

from rich.console import Console

from sweeps import commands
from sweeps.commands.arguments import Command
from sweeps.masking import masked


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; every complaint about input is one message on standard error."""
    if str(Path.cwd()) not in sys.path:  # so that a user's own module:Name is found
        sys.path.insert(0, str(Path.cwd()))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a sign that a terminal lacks is no error
            stream.reconfigure(errors="replace")
    parser = _parser()
    options = parser.parse_args(arguments)
    console = _Terminal()
    from sweeps.spec.reading import SpecError
    from sweeps.store import LockedError, StoreError

    logging.basicConfig(format="calsweep: %(message)s", level=logging.ERROR)
    logging.getLogger("calsweep").setLevel(logging.WARNING)
    command: Command = options.command
    try:
        signal.signal(signal.SIGTERM, _terminate)
        return command(options, console)
    except (SpecError, LockedError) as error:
        print(f"calsweep: {error}", file=sys.stderr)
        return 2
    except StoreError as error:
        print(f"calsweep: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (KeyboardInterrupt, SystemExit) as stop:  # while it starts, Ray makes it the latter
        words = ["calsweep", *(sys.argv[1:] if arguments is None else arguments)]
        again = shlex.join(masked(word) for word in words)
        print(f"calsweep: stopped; nothing is lost, and this goes on: {again}", file=sys.stderr)
        return 143 if _terminated.is_set() or isinstance(stop, SystemExit) else 130


class _Terminal(Console):
    def on_broken_pipe(self) -> None:
        """Say what happened: rich would end the process as if it were interrupted."""
        raise BrokenPipeError


_terminated = threading.Event()


def _terminate(number: int, frame: FrameType | None) -> None:
    """SIGTERM: the same way out as Ctrl-C. Ray passes on the exception, but not its kind."""
    _terminated.set()
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="calsweep", description="Which calibration method, at which settings, at what cost?"
    )
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for module in commands.ALL:
        module.add(subparsers)
    for point in entry_points(group="calsweep.commands"):
        point.load()(subparsers)
    return parser


if __name__ == "__main__":
    sys.exit(main())
