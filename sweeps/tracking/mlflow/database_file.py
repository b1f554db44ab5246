"""The file of a sqlite tracking database, and whether it is one.

MLflow adds its tables to any sqlite database it is given, so the file is checked first.
"""

from __future__ import annotations

import shlex
import sqlite3
from contextlib import closing
from pathlib import Path

from sweeps.errors import UserError
from sweeps.spec.reading import shortened

SCHEMA_REVISION = "dc11669786a5"  # of mlflow 3.17
_SECONDS = 5.0
_LONGEST_NAME = 500
MAGIC = b"SQLite format 3\0"
_TABLES = frozenset({"experiments", "runs", "metrics", "params", "tags"})
_ELSEWHERE = "name another file"


def database_path(uri: str) -> Path | None:
    """The file of a sqlite database, in whatever dialect its URI is written; else None."""
    scheme, _, rest = uri.partition(":///")
    if scheme.partition("+")[0] != "sqlite" or not rest:
        return None
    return Path(rest.partition("?")[0])


def check_database_file(uri: str, *, migrated: bool = False) -> None:
    """Raise ``UserError`` if the file of a sqlite URI is not, or cannot become, MLflow's.

    The file is only read. It has to match the installed MLflow unless it will be ``migrated``;
    then it may also be empty. Other kinds of URIs are not checked, nor is a database that stays
    locked and cannot be read.
    """
    path = database_path(uri)
    if path is None:
        return
    try:
        problem = _problem(path, migrated=migrated)
    except OSError as error:
        problem = f"cannot be used: {error.strerror or error}"
    if problem is not None:
        name = str(path)
        plain = name.isprintable() and len(name) <= _LONGEST_NAME
        raise UserError(f"{name if plain else shortened(name)}: {problem}")


def _problem(path: Path, *, migrated: bool) -> str | None:
    if path.is_dir():
        return "is a directory; name a file in it"
    if not path.exists() and not path.is_symlink():
        above = next(p for p in path.absolute().parents if p.exists() or p.is_symlink())
        return None if above.is_dir() else f"cannot be created: {above} is not a directory"
    if not path.is_file():
        return f"is not a file; {_ELSEWHERE}"
    with path.open("rb") as file:
        start = file.read(len(MAGIC))
    if not start:
        return None if migrated else f"is empty; delete it, or {_ELSEWHERE}"
    if start != MAGIC:
        return f"is not a sqlite database; {_ELSEWHERE}"
    try:
        tables, revisions = _read(path)
    except sqlite3.OperationalError:  # locked
        return None
    except sqlite3.DatabaseError as error:
        return f"is a damaged sqlite database ({error}); restore it, or {_ELSEWHERE}"
    if not tables:
        return None if migrated else f"is an empty database; delete it, or {_ELSEWHERE}"
    if not tables >= _TABLES or not revisions:
        there = ", ".join(sorted(tables)[:5])
        return f"is a sqlite database of another program (its tables: {there}); {_ELSEWHERE}"
    fits = migrated or revisions == {SCHEMA_REVISION}
    return None if fits else _version_problem(path, revisions)


def _read(path: Path) -> tuple[set[str], set[str]]:
    """The tables of a sqlite database, and its recorded version of MLflow's schema."""
    address = f"{path.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True, timeout=_SECONDS)) as connection:
        named = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        tables = {str(name) for (name,) in named}
        if "alembic_version" not in tables:
            return tables, set()
        rows = connection.execute("SELECT version_num FROM alembic_version").fetchall()
        return tables, {str(version) for (version,) in rows}


def _version_problem(path: Path, found: set[str]) -> str | None:
    """The remedy for a schema that is not the installed MLflow's; takes seconds."""
    from alembic.script import ScriptDirectory
    from alembic.util import CommandError
    from mlflow.store.db.utils import _get_alembic_config

    configuration = _get_alembic_config("")  # type: ignore[no-untyped-call]
    scripts = ScriptDirectory.from_config(configuration)
    if found == set(scripts.get_heads()):
        return None
    try:
        scripts.get_revisions(tuple(found))
    except CommandError:
        return (
            f"was made by another version of MLflow than the installed one; update that, or "
            f"{_ELSEWHERE}"
        )
    upgrade = f"mlflow db upgrade {shlex.quote(f'sqlite:///{path.absolute()}')}"
    return f"was made by an older version of MLflow; back it up and run {upgrade}, or {_ELSEWHERE}"
