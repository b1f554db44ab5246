"""An MLflow server for a team on one machine: users, one database, artifacts through the server.

Secrets come from the environment and stay there: none is in an argument, a file or a message.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import sqlalchemy
from sqlalchemy.exc import ArgumentError

from sweeps.errors import UserError
from sweeps.host.scratch import scratch_directory
from sweeps.host.secrets import masked, without_secrets
from sweeps.tracking.mlflow.database_file import check_database_file, database_path
from sweeps.tracking.mlflow.drivers import with_driver
from sweeps.tracking.mlflow.server import MlflowServer, ServerError

DATABASE = "MLFLOW_BACKEND_STORE_URI"
REQUIRED_SECRETS = {
    "MLFLOW_AUTH_ADMIN_PASSWORD": "the password of the user admin, set at the first start",
    "MLFLOW_FLASK_SERVER_SECRET_KEY": "the key with which the server signs its forms",
}
SHORTEST = 12
"""Fewest characters of a password that MLflow accepts."""
LIVENESS = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
"""A database whose machine is gone is then noticed within a minute instead of hours."""
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
CONFIGURATION = """\
[mlflow]
default_permission = {permission}
database_uri = {database}
admin_username = admin
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
# A password is checked against its hash, which is slow by design, only once in this many seconds.
auth_cache_ttl_seconds = 60
"""


@dataclass(frozen=True)
class Service:
    """The settings of a server; ``names`` are the host names that clients use for it."""

    database: str
    artifacts: str
    host: str = "127.0.0.1"
    port: int = 5000
    workers: int = 2
    names: tuple[str, ...] = ()
    permission: str = "READ"


def default_database() -> str:
    """The environment's database; without one, sqlite in the directory ``mlflow-server``."""
    return os.environ.get(DATABASE) or f"sqlite:///{Path('mlflow-server/mlflow.db').resolve()}"


def check_service(service: Service) -> None:
    """Raise ``UserError`` for missing or wrong settings, before anything starts."""
    for name, what in REQUIRED_SECRETS.items():
        value = os.environ.get(name, "")
        if not value:
            raise UserError(
                f"{name} is not set: it is {what}; export your own, for example from "
                "python3 -c 'import secrets; print(secrets.token_urlsafe(32))'"
            )
        if len(value) < SHORTEST:
            raise UserError(f"{name}: found {len(value)} characters; use at least {SHORTEST}")
    if find_spec("flask_wtf") is None:
        raise UserError("MLflow's users need more packages; pip install 'mlflow[auth]'")
    if masked(service.artifacts) != service.artifacts:
        raise UserError(f"--artifacts: found {masked(service.artifacts)}; {_elsewhere('AWS_…')}")
    _database(service.database)
    check_database_file(service.database, migrated=True)


def check_option(database: str) -> None:
    """Raise ``UserError`` if a URI on the command line contains a password."""
    if masked(database) != database and _database(database)[1]:
        place = f"PGPASSWORD, or the whole of it in {DATABASE}"
        raise UserError(f"--database: found {masked(database)}; {_elsewhere(place)}")


def _elsewhere(place: str) -> str:
    return f"everyone can read a command's arguments: put the password in {place}"


def _database(uri: str) -> tuple[str, str]:
    """The URI as MLflow needs it, without its password, and that password."""
    wanted = "postgresql://USER@HOST/DATABASE or sqlite:////PATH/mlflow.db"
    try:
        url = sqlalchemy.make_url(with_driver(uri))
        backend = url.get_backend_name()
    except (ArgumentError, ValueError):
        raise UserError(f"the database: found {masked(uri)}; write {wanted}") from None
    if backend not in ("postgresql", "sqlite"):
        raise UserError(f"the database: found {masked(uri)}; write {wanted}")
    if backend == "sqlite":
        return uri, ""
    query = dict(url.query)
    password = url.password or str(query.pop("password", ""))
    bare = sqlalchemy.URL.create(
        url.drivername,
        username=url.username,
        host=url.host,
        port=url.port,
        database=url.database,
        query={**LIVENESS, **query},
    )
    return bare.render_as_string(hide_password=False), str(password)


def environment(service: Service) -> dict[str, str]:
    """The environment of the server and of the process that prepares its database."""
    database, password = _database(service.database)
    variables = {
        DATABASE: database,
        "MLFLOW_ARTIFACTS_DESTINATION": service.artifacts,
        "MLFLOW_SERVE_ARTIFACTS": "true",
        "MLFLOW_SERVER_ALLOWED_HOSTS": ",".join(_hosts(service)),
        # The server's own pages count as foreign unless they come from localhost.
        "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS": ",".join(_origins(service)),
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_WORKERS": str(service.workers),
        "PYTHONWARNINGS": "ignore",  # MLflow's warnings are for its developers
    }
    return variables | ({"PGPASSWORD": password} if password else {})


def _hosts(service: Service) -> list[str]:
    """Patterns of the server's allowed host names, with any port or none."""
    names = dict.fromkeys((*LOOPBACK, *service.names))
    return [form for name in names for form in (name, f"{name.replace('[', '[[]')}:*")]


def _origins(service: Service) -> list[str]:
    """The allowed origins of its pages: not patterns, which would match longer names as well."""
    ports = ("", f":{service.port}")
    addresses = [f"{name}{port}" for name in service.names if "[" not in name for port in ports]
    return [f"{scheme}://{address}" for address in addresses for scheme in ("http", "https")]


def own_names(host: str) -> tuple[str, ...]:
    """The names that others may use for a machine that listens on ``host``."""
    if host in ("127.0.0.1", "::1", "localhost"):
        return ()
    everywhere = host in ("0.0.0.0", "::")
    found = (socket.gethostname(), socket.getfqdn()) if everywhere else (host,)
    return tuple(f"[{name}]" if ":" in name else name for name in dict.fromkeys(found))


@contextmanager
def running(service: Service) -> Iterator[MlflowServer]:
    """Migrate the database and start the server, which runs until the end of the context.

    Raises ``ServerError`` if the database cannot be used or the server does not start.
    """
    variables = environment(service)
    file = database_path(service.database)
    if file is not None:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ServerError(f"--database {service.database}: {error}") from None
    _migrate(variables, masked(service.database))
    with scratch_directory() as directory:
        configuration = directory / "basic_auth.ini"
        database = variables[DATABASE].replace("%", "%%")
        configuration.write_text(
            CONFIGURATION.format(permission=service.permission, database=database)
        )
        server = MlflowServer(
            variables[DATABASE],
            service.port,
            host=service.host,
            arguments=("--app-name", "basic-auth"),
            environment={**variables, "MLFLOW_AUTH_CONFIG_PATH": str(configuration)},
            aloud=True,
        )
        with server:
            server.wait_until_it_answers()
            yield server


def _migrate(variables: Mapping[str, str], database: str) -> None:
    """Migrate in a separate process, as in the server's container."""
    script = Path(__file__).parent / "migration.py"
    done = subprocess.run(
        [sys.executable, str(script)],
        env=os.environ | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"it ended with code {done.returncode}"]
        message = without_secrets(last[0], variables[DATABASE])
        raise ServerError(f"{database}: {message}")
