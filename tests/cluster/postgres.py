"""Debian's Postgres, in a directory and on a port of its own, to be stopped and started."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg2

from tests.ports import free_port
from tests.waiting import wait_for

USER = "mlflow"


def program(name: str) -> str:
    """One of Postgres' programs: Debian does not put them all on the path."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: float(p.parent.name))
    found = shutil.which(name, path=os.pathsep.join([*map(str, reversed(places)), os.defpath]))
    assert found is not None, f"there is no {name}; install Debian's postgresql"
    return found


class Postgres:
    """One server. It refuses to run as root: then it runs as the user postgres."""

    def __init__(self, directory: Path, password: str) -> None:
        self.directory = directory
        self.password = password
        self.port = free_port()
        self.log = directory / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._own: dict[str, Any] = {"cwd": directory}
        if os.getuid() == 0:
            owner = pwd.getpwnam("postgres")
            os.chown(directory, owner.pw_uid, owner.pw_gid)
            self._own |= {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        secret = directory / "password"
        secret.write_text(password)
        secret.chmod(0o644)
        create = [program("initdb"), "--pgdata=data", f"--username={USER}", "--no-sync"]
        create += ["--pwfile=password", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"]
        subprocess.run(create, check=True, stdout=subprocess.DEVNULL, **self._own)
        secret.unlink()

    @property
    def environment(self) -> dict[str, str]:
        """How clients of libpq find it, and its password."""
        where = {"PGHOST": "127.0.0.1", "PGPORT": str(self.port), "PGUSER": USER}
        return where | {"PGPASSWORD": self.password}

    def uri(self, database: str) -> str:
        """The database's URI, without the password."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [program("postgres"), "-D", "data", "-p", str(self.port)]
        # The machine does not crash, only its processes: nothing need reach the disk.
        command += ["-h", "127.0.0.1", "-k", str(self.directory), "-c", "fsync=off"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, **self._own
            )
        wait_for(self._answers, self._process, log=self.log)

    def stop(self) -> None:
        """At once, all connections with it, and without a farewell: as if it had crashed."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()
            self._process = None

    def create(self, database: str) -> None:
        """Make an empty database."""
        self.rows("postgres", f"CREATE DATABASE {database}")

    def rows(self, database: str, query: str) -> list[tuple[Any, ...]]:
        """What a query finds; nothing if it only does something."""
        with contextlib.closing(self._connect(database)) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(query)
                return cursor.fetchall() if cursor.description else []

    def dump(self, database: str) -> bytes:
        """All that it holds, as text."""
        command = [program("pg_dump"), "--host=127.0.0.1", f"--port={self.port}"]
        command += [f"--username={USER}", "--inserts", database]
        done = subprocess.run(
            command, check=True, capture_output=True, env=os.environ | self.environment
        )
        return done.stdout

    def _answers(self) -> bool:
        try:
            self._connect("postgres").close()
        except psycopg2.OperationalError:
            return False
        return True

    def _connect(self, database: str) -> Any:
        return psycopg2.connect(
            host="127.0.0.1",
            port=self.port,
            user=USER,
            password=self.password,
            dbname=database,
            connect_timeout=60,
        )


@contextmanager
def postgres(password: str) -> Iterator[Postgres]:
    """A running server; it and its directory are gone afterwards."""
    # Not below pytest's own directory, which other users cannot enter.
    with tempfile.TemporaryDirectory(prefix="calsweep-postgres-") as directory:
        made = Postgres(Path(directory), password)
        try:
            made.start()
            yield made
        finally:
            made.stop()
