"""The drivers of tracking databases."""

from __future__ import annotations

from importlib.util import find_spec

from sweeps.errors import UserError
from sweeps.host.secrets import masked

POSTGRES = ("psycopg2", "psycopg")


def with_driver(uri: str) -> str:
    """``uri`` in a form that SQLAlchemy can open: a Postgres URI without a driver gets one.

    The default driver of ``postgresql://`` depends on SQLAlchemy's release; here it is the one
    that is installed. Raises ``UserError`` if there is none.
    """
    scheme, _, rest = uri.partition("://")
    if scheme.lower() != "postgresql":
        return uri
    installed = next((name for name in POSTGRES if find_spec(name) is not None), None)
    if installed is None:
        raise UserError(missing_driver(uri, POSTGRES[0]))
    return f"postgresql+{installed}://{rest}"


def missing_driver(uri: str, module: str) -> str:
    """The message for a database driver that cannot be imported."""
    package = {"psycopg2": "psycopg2-binary", "MySQLdb": "mysqlclient"}.get(module, module)
    return (
        f"{masked(uri)}: Python's driver for this database, {module}, is not installed; "
        f"pip install {package}"
    )
