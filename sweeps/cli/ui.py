"""``calsweep ui``: sweeps in MLflow's UI, with links to the relevant pages."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from rich.console import Console

from sweeps.cli.arguments import Subparsers, add_store, add_tracking
from sweeps.errors import UserError
from sweeps.host.console import say

if TYPE_CHECKING:
    from sweeps.store import Store

_ABOUT = {
    "results": "confirmed runs, best validation NLL first",
    "charts": "test results and curves, averaged over the seeds",
    "compare": "one run of every row, side by side",
    "search": "all search trials",
    "table": "the leaderboard",
    "report": "the report",
    "sweep": "the sweep's own run, with its description and files",
}


def add(commands: Subparsers) -> None:
    """Add the command."""
    ui = commands.add_parser("ui", help="look at sweeps in the MLflow UI")
    ui.add_argument(
        "sweep", nargs="?", metavar="SWEEP", help="a sweep's name or YAML file (default: all)"
    )
    ui.add_argument(
        "--port", type=_port, help="the port to serve on (default: the first free one from 5000)"
    )
    add_tracking(ui)
    add_store(ui)
    ui.set_defaults(command=_ui)


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"found {text!r}; write a port, e.g. 5000")
    return int(text)


def _ui(options: argparse.Namespace, console: Console) -> int:
    from sweeps.spec.tracking_uri import check_tracking_option
    from sweeps.store import Store

    check_tracking_option(options.tracking)
    store = Store(options.store)
    name, spec_uri = _named(options.sweep, store)
    uri = _tracking_uri(options.tracking or spec_uri, store)
    if uri.startswith(("http://", "https://")):
        return _show_remote(uri, name, console)
    return _serve(uri, name, options.port, console)


def _named(given: str | None, store: Store) -> tuple[str | None, str | None]:
    """The name of the requested sweep, and the tracking URI of its spec."""
    from sweeps.spec.reading import SpecError, parse, read_text
    from sweeps.sweep import SPEC

    if given is None:
        return None, None
    path = Path(given)
    if path.suffix in (".yaml", ".yml"):
        text = read_text(path)
    else:
        try:
            stored = store.read_file(given, SPEC)
        except ValueError:  # not a valid name of a sweep
            stored = None
        if stored is None:  # not in this store, but perhaps in the database
            return given, None
        text = stored.decode(errors="replace")
    # Its data need not be available to look at it: only the needed fields are read.
    spec, _ = parse(path, text)
    tracking = spec.get("tracking") or {}
    if not isinstance(spec.get("name"), str) or not isinstance(tracking, str | dict):
        raise SpecError(f"{given}: not a spec: it has no name, or an invalid 'tracking'")
    return spec["name"], tracking if isinstance(tracking, str) else tracking.get("uri")


def _tracking_uri(uri: str | None, store: Store) -> str:
    """The tracking URI; raises ``UserError`` for a local database that does not exist."""
    from sweeps.tracking.mlflow.backend import default_uri
    from sweeps.tracking.mlflow.database_file import check_database_file, database_path

    found = uri or default_uri(store)
    database = database_path(found)
    if database is None:
        return found
    if not database.is_file():
        raise UserError(f"{database}: no such file; run a sweep first, or set --store")
    check_database_file(found)
    return f"sqlite:///{database.resolve()}"


def _show_remote(uri: str, name: str | None, console: Console) -> int:
    """Print links to a server that is already running."""
    from sweeps.tracking.mlflow.access import check_access
    from sweeps.tracking.mlflow.links import links_to

    check_access(uri)
    _print_links(links_to(uri, _without_user(uri), name), console)
    sys.stdout.flush()
    return 0


def _serve(uri: str, name: str | None, port: int | None, console: Console) -> int:
    from sweeps.tracking.mlflow.links import links_to
    from sweeps.tracking.mlflow.server import FIRST_PORT, MlflowServer, free_port

    chosen = free_port() if port is None else free_port(port, 1)
    if chosen is None:
        taken = f"--port {port} is taken" if port else f"no port from {FIRST_PORT} on is free"
        raise UserError(f"{taken}; choose another with --port")
    try:
        with MlflowServer(uri, chosen) as server:
            # While it starts: both take seconds.
            links = links_to(uri, server.address, name)
            server.wait_until_it_answers()
            _print_links(links, console)
            say(console, "", f"MLflow runs at {server.address} (stop it with Ctrl-C)")
            sys.stdout.flush()
            server.wait()
    except KeyboardInterrupt:  # the way to stop it, as is SIGTERM
        return 0
    return 1


def _print_links(links: dict[str, dict[str, str]], console: Console) -> None:
    for sweep, addresses in links.items():
        say(console, "", sweep)
        for what, address in addresses.items():
            say(console, f"  {what:8} {_ABOUT[what]}", f"           {address}")


def _without_user(uri: str) -> str:
    """The address without user and password: browsers ask for them."""
    parts = urlsplit(uri)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
