"""Run as a script: brings MLflow's tables in one database, those of its users included, to date.

Before the server starts, and once: its workers would each do it at the same time. Several
that are started together take turns. It reads the database's URI from
``MLFLOW_BACKEND_STORE_URI`` and, of Postgres, the password from ``PGPASSWORD``; it needs
MLflow alone, so that a server's image need hold nothing else.
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
"""What Postgres says to those whom waiting does not help."""
LOCK = 5_000_2718
"""The number of the lock in Postgres that whoever migrates holds."""


def migrate(uri: str, patience: float = PATIENCE) -> None:
    """Create the tables in an empty database, or bring old ones to what this MLflow expects.

    Raises ``OperationalError`` if the database refuses, or is not there in ``patience`` seconds.
    """
    with _turn(uri, patience):
        # Imported here: a wrong password should not be told seconds later.
        from mlflow.db import upgrade
        from mlflow.server.auth.db.utils import migrate as migrate_users

        # The runs' tables first: they are made only where there are none at all.
        upgrade.main([uri], standalone_mode=False)
        engine = sqlalchemy.create_engine(uri, poolclass=NullPool)
        migrate_users(engine, "head")


@contextmanager
def _turn(uri: str, patience: float) -> Iterator[None]:
    """Wait for the database and, if it is Postgres, for others who migrate it."""
    engine = sqlalchemy.create_engine(uri, poolclass=NullPool)
    with _connection(engine, time.monotonic() + patience) as connection:
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
