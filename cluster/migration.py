"""Run as a script: upgrades MLflow's tables in one database, including those of its users.

Runs once, before the server starts: its workers would each do it at the same time. On Postgres,
several processes started together take turns. It reads the database's URI from
``MLFLOW_BACKEND_STORE_URI`` and, for Postgres, the password from ``PGPASSWORD``; it needs only
MLflow, so that a server's image need not contain anything else.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

URI = "MLFLOW_BACKEND_STORE_URI"
PATIENCE = 120.0
"""Seconds that a database may take to start."""
_REFUSALS = ("authentication failed", "no password supplied", "does not exist", "pg_hba.conf")
"""Messages of Postgres for errors that waiting does not resolve."""
LOCK = 5_000_2718
"""The number of the Postgres lock held during migration."""


def migrate(uri: str) -> None:
    """Create the tables in an empty database, or upgrade old ones to this version of MLflow.

    Raises ``OperationalError`` if the database refuses, or does not answer in ``PATIENCE`` seconds.
    """
    with _turn(uri):
        # Imported here, so that a wrong password is reported at once.
        from mlflow.db import upgrade
        from mlflow.server.auth.db.utils import migrate as migrate_users

        # The runs' tables first: they are created only if there are no tables at all.
        upgrade.main([uri], standalone_mode=False)
        engine = sqlalchemy.create_engine(uri, poolclass=NullPool)
        migrate_users(engine, "head")


@contextmanager
def _turn(uri: str) -> Iterator[None]:
    """Wait for the database and, if it is Postgres, for other migrations of it."""
    engine = sqlalchemy.create_engine(uri, poolclass=NullPool)
    with _connection(engine, time.monotonic() + PATIENCE) as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(sqlalchemy.text(f"SELECT pg_advisory_lock({LOCK})"))
        yield  # the lock ends with the connection


def _connection(engine: sqlalchemy.Engine, deadline: float) -> sqlalchemy.Connection:
    while True:
        try:
            return engine.connect()
        except OperationalError as error:
            refused = any(words in str(error.orig) for words in _REFUSALS)
            if refused or time.monotonic() > deadline:
                raise
        time.sleep(0.5)


def main() -> int:
    """Migrate the database that the environment names."""
    uri = os.environ.get(URI, "")
    if not uri:
        print(
            f"{URI} is not set; write e.g. postgresql+psycopg2://user@host/mlflow", file=sys.stderr
        )
        return 2
    try:
        migrate(uri)
    except OperationalError as error:
        message = " ".join(str(error.orig).split())
        print(f"the database cannot be used: {message}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
