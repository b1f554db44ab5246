"""Whether a text can be the URI of an MLflow server or database."""

from __future__ import annotations

import ipaddress
import re
from importlib.metadata import entry_points
from urllib.parse import urlsplit

from sweeps.errors import UserError
from sweeps.host.secrets import NAMED, PASSWORD, masked
from sweeps.spec.reading import shortened

SERVERS = ("http", "https")
DATABASES = ("postgresql", "mysql", "mssql")
_LONGEST = 2000
WRONG_PORT = "whose port is not a number from 1 to 65535"
_HOST = re.compile(r"(?!-)[\w-]{1,63}(?:\.[\w-]{1,63})*\.?")
EXAMPLES = (
    "write e.g. http://host:5000, sqlite:////path/mlflow.db or postgresql://user@host/database"
)
VARIABLES = {
    "http": "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD in the environment",
    "https": "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD in the environment",
    "postgresql": "set PGPASSWORD in the environment, or use ~/.pgpass",
}


def tracking_problem(uri: str) -> str | None:
    """Why ``uri`` cannot be that of an MLflow server or database; None if it can."""
    reason = _reason(uri)
    if reason is None:
        return None
    return f"found {shortened(masked(uri))}{reason and f', {reason}'}; {EXAMPLES}"


def check_tracking_option(uri: str | None) -> None:
    """Raise ``UserError`` if ``--tracking`` is not a valid URI, or contains a password.

    Every user of the machine can list the arguments of commands.
    """
    if uri is None:
        return
    problem = tracking_problem(uri)
    if problem is None and password_in(uri):
        problem = (
            f"found {shortened(masked(uri))}; other users can see a command's arguments: leave "
            f"user and password out, and {password_place(uri)}"
        )
    if problem is not None:
        raise UserError(f"--tracking: {problem}")


def password_in(uri: str) -> bool:
    """Whether a valid URI contains a password or, if it is a server's, a user."""
    if _scheme(uri) in SERVERS:
        return "@" in urlsplit(uri).netloc  # a token may stand where the user does
    return PASSWORD.search(uri) is not None or NAMED.search(uri) is not None


def password_place(uri: str) -> str:
    """Where a server's or database's password belongs."""
    return VARIABLES.get(_scheme(uri), "put it into the file that the database's driver reads")


def _scheme(uri: str) -> str:
    return uri.partition("://")[0].partition("+")[0]


def _reason(uri: str) -> str | None:
    """Why it is invalid; None if it is valid, and empty if it is nothing of the kind."""
    if len(uri) > _LONGEST:
        return f"{len(uri)} characters long"
    if not uri.isprintable():
        return "which has control characters"
    written, separator, rest = uri.partition("://")
    if not separator:
        return None if uri == "databricks" else ""
    scheme, _, driver = written.partition("+")
    if scheme == "sqlite":
        return _file_reason(rest)
    if any(character.isspace() for character in uri):
        return "which contains a space"
    if scheme in SERVERS and not driver:
        return _server_reason(uri)
    if scheme in DATABASES:
        return _database_reason(uri)
    plugins = {point.name for point in entry_points(group="mlflow.tracking_store")}
    return None if written in {"databricks", *plugins} - {"file"} and rest else ""


def _file_reason(rest: str) -> str | None:
    path = rest.removeprefix("/").partition("?")[0]
    if not rest.startswith("/"):
        return "which needs three slashes before a path, and a fourth before an absolute one"
    if not path or path.endswith("/"):
        return "which names no file"
    if path.startswith(":memory:"):
        return "which would be gone with the command"
    return None


def _server_reason(uri: str) -> str | None:
    try:
        parts = urlsplit(uri)
        host = parts.hostname
    except ValueError:  # brackets that do not match
        return "whose host is not a name"
    try:
        number = parts.port
    except ValueError:  # which may quote a password
        number = 0
    if number == 0:
        return WRONG_PORT
    if parts.query or parts.fragment or "#" in uri:
        return "a page: name the server, without what follows ? or #"
    return _host_reason(host)


def _database_reason(uri: str) -> str | None:
    import sqlalchemy
    from sqlalchemy.exc import ArgumentError

    try:
        url = sqlalchemy.make_url(uri)
    except ValueError:
        return WRONG_PORT
    except ArgumentError:
        return ""
    if url.port is not None and not 0 < url.port < 65536:
        return WRONG_PORT
    return None if url.host is None else _host_reason(url.host)


def _host_reason(host: str | None) -> str | None:
    if not host:
        return "which names no host"
    if ":" in host or re.fullmatch(r"[\d.]+", host):
        try:
            ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return f"whose host {host} is not an IP address"
        return None
    if len(host) > 253 or not _HOST.fullmatch(host):
        return f"whose host {shortened(host)} is not a name"
    return None
