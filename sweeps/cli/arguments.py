"""Arguments shared by several commands."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from rich.console import Console

from sweeps.errors import UserError
from sweeps.host.console import say

if TYPE_CHECKING:
    from sweeps.status.server import StatusServer
    from sweeps.sweep import Sweep

Command = Callable[[argparse.Namespace, Console], int]
Completer = Callable[..., Iterable[str]]
"""Gets the beginning of a word as ``prefix`` and the options so far as ``parsed_args``."""
Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def completed_by(action: argparse.Action, completer: Completer) -> None:
    """Complete this argument in a shell (``sweeps.cli.completion``) with ``completer``."""
    action.completer = completer  # type: ignore[attr-defined]  # argcomplete looks for it


def add_spec(parser: argparse.ArgumentParser) -> None:
    """Add the argument SPEC: something to run."""
    spec = parser.add_argument("spec", type=Path, help="a YAML file, or the name of a bundled spec")
    completed_by(spec, _specs)


def add_sweep(
    parser: argparse.ArgumentParser, name: str = "sweep", *, optional: bool = False
) -> None:
    """Add the argument SWEEP: something that was run; if ``optional``, all of them by default."""
    sweep = parser.add_argument(
        name,
        metavar=name.upper(),
        nargs="?" if optional else None,
        help="the name of a sweep in the store, or its YAML file"
        + (" (default: every sweep)" if optional else ""),
    )
    completed_by(sweep, _sweeps)


def add_store(parser: argparse.ArgumentParser) -> None:
    """Add the option --store."""
    parser.add_argument(
        "--store", default="runs", help="a directory or a URI such as s3://… (default: runs)"
    )


def add_tracking(parser: argparse.ArgumentParser) -> None:
    """Add the option --tracking."""
    parser.add_argument(
        "--tracking", metavar="URI", help="MLflow (default: the spec's, or sqlite in the store)"
    )


def check_place(option: str, path: Path) -> None:
    """Raise ``UserError`` if ``path`` cannot be written: before the work, not after it."""
    if path.is_dir():
        raise UserError(f"{option} {path} is a directory; name a file")
    if not path.parent.is_dir():
        raise UserError(f"{option} {path}: no directory {path.parent}; create it first")


def opened(options: argparse.Namespace) -> Sweep:
    """The sweep that a command names. Raises ``UserError`` if the store has no such sweep."""
    from sweeps.sweep import open_sweep

    return open_sweep(options.sweep, options.store)


def _specs(prefix: str, **_: object) -> list[str]:
    from sweeps.specs import ready_names

    return [*ready_names(), *_yaml_files(prefix)]


def _sweeps(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """The sweeps of a store that is a local directory: others would need the network."""
    store = Path(getattr(parsed_args, "store", "runs"))
    return [*(path.parent.name for path in store.glob("*/spec.yaml")), *_yaml_files(prefix)]


def _yaml_files(prefix: str) -> list[str]:
    from argcomplete.completers import FilesCompleter

    return list(FilesCompleter(("yaml", "yml"))(prefix))


def add_status_port(parser: argparse.ArgumentParser) -> None:
    """Add ``--status-port``."""
    parser.add_argument(
        "--status-port",
        type=_host_and_port,
        metavar="[HOST:]PORT",
        help="show progress there while it runs: a live page, /status.json, /metrics for "
        "Prometheus (HOST: 127.0.0.1; PORT 0: any free one)",
    )


def _host_and_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"found {text!r}; write a port, e.g. 8090, or HOST:PORT")
    return host.strip("[]") or "127.0.0.1", int(port)


def host_and_port(options: argparse.Namespace) -> str:
    """The value of ``--status-port``, as it can be given again."""
    host, port = options.status_port
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@contextmanager
def status_server(options: argparse.Namespace, console: Console) -> Iterator[StatusServer | None]:
    """The endpoint requested by ``--status-port``. Raises ``UserError`` if it cannot be opened."""
    if options.status_port is None:
        yield None
        return
    from sweeps.status.server import StatusServer

    with StatusServer(*options.status_port) as server:
        say(console, f"status    {server.address}")
        yield server
