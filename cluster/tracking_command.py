"""``calsweep tracking up``: an MLflow server with users on this machine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from sweeps.cli.arguments import Subparsers
from sweeps.errors import UserError
from sweeps.host.console import say

if TYPE_CHECKING:
    from cluster.tracking import Service

PERMISSIONS = ("READ", "EDIT", "MANAGE", "NO_PERMISSIONS")


def add(commands: Subparsers) -> None:
    """Add the command."""
    tracking = commands.add_parser("tracking", help="an MLflow server for a team")
    up = tracking.add_subparsers(required=True, metavar="COMMAND").add_parser(
        "up",
        help="start an MLflow server on this machine, with users and passwords, until Ctrl-C",
        description="It reads MLFLOW_AUTH_ADMIN_PASSWORD, MLFLOW_FLASK_SERVER_SECRET_KEY and, for "
        "Postgres, PGPASSWORD from the environment.",
    )
    up.add_argument(
        "--database",
        metavar="URI",
        help="Postgres, without the password (default: MLFLOW_BACKEND_STORE_URI in the "
        "environment, or sqlite in ./mlflow-server)",
    )
    up.add_argument(
        "--artifacts",
        metavar="PLACE",
        default="mlflow-server/artifacts",
        help="a directory or e.g. s3://bucket/path (default: %(default)s)",
    )
    up.add_argument("--host", default="127.0.0.1", help="where to listen (default: %(default)s)")
    up.add_argument(
        "--port",
        type=_number(65535),
        default=5000,
        help="the port to serve on (default: %(default)s)",
    )
    up.add_argument(
        "--allowed-hosts",
        metavar="NAMES",
        default="",
        help="further host names of this machine for clients, separated by commas",
    )
    up.add_argument(
        "--permission",
        choices=PERMISSIONS,
        default="READ",
        help="users' permission on what others have made (default: %(default)s)",
    )
    up.add_argument(
        "--workers", type=_number(64), default=2, help="server processes (default: %(default)s)"
    )
    up.set_defaults(command=_up)


def _number(largest: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or not 1 <= int(text) <= largest:
            raise argparse.ArgumentTypeError(f"found {text!r}; write a number from 1 to {largest}")
        return int(text)

    return number


def _up(options: argparse.Namespace, console: Console) -> int:
    from cluster import tracking
    from sweeps.tracking.mlflow.server import free_port

    if options.database is not None:
        tracking.check_option(options.database)
    names = [name.strip() for name in options.allowed_hosts.split(",")]
    service = tracking.Service(
        database=options.database or tracking.default_database(),
        artifacts=_place(options.artifacts),
        host=options.host,
        port=options.port,
        workers=options.workers,
        names=(*tracking.own_names(options.host), *filter(None, names)),
        permission=options.permission,
    )
    tracking.check_service(service)
    if free_port(options.port, 1, options.host) is None:
        raise UserError(
            f"--host {options.host} --port {options.port}: the port is taken, or the address is "
            "not one of this machine; choose another"
        )
    try:
        with tracking.running(service) as server:
            say(console, *_introduction(service, server.address))
            sys.stdout.flush()
            server.wait()
    except KeyboardInterrupt:  # the way to stop it, as is SIGTERM
        return 0
    return 1


def _place(artifacts: str) -> str:
    """The location of artifacts, independent of the working directory of the server's processes."""
    return artifacts if "://" in artifacts else str(Path(artifacts).resolve())


def _introduction(service: Service, address: str) -> list[str]:
    from sweeps.host.secrets import masked

    where = next(iter(service.names), "")
    server = f"http://{where}:{service.port}" if where else address
    return [
        f"MLflow runs at {server} (stop it with Ctrl-C)",
        f"  runs and users in {masked(service.database)}",
        f"  artifacts in {service.artifacts}",
        "to run sweeps, set these for a user that admin has created:",
        "  export MLFLOW_TRACKING_USERNAME=…",
        "  export MLFLOW_TRACKING_PASSWORD=…",
        f"  calsweep run SPEC --tracking {server}",
    ]
