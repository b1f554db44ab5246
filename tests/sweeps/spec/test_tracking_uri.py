"""Where MLflow is said to be: what cannot be meant is refused before anything starts."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from sweeps.cli.main import main
from sweeps.errors import UserError
from sweeps.host.secrets import masked
from sweeps.spec.tracking_uri import check_tracking_option, tracking_problem
from sweeps.tracking.mlflow.database import create_database
from sweeps.tracking.mlflow.database_file import check_database_file
from tests.tiny import SPEC
from tests.tracked import empty_database


@pytest.mark.parametrize(
    "uri",
    [
        "http://localhost",
        "https://mlflow.example.org:443/team",
        "http://127.0.0.1:5000",
        "http://[::1]:5000",
        "http://my_host:1",
        "sqlite:///mlflow.db",
        "sqlite:////srv/my runs/mlflow.db",
        "sqlite+pysqlite:////srv/mlflow.db",
        "postgresql://me@host:5432/db",
        "postgresql+psycopg2:///db?host=/run/postgresql",
        "mysql+pymysql://me@host/db",
        "mssql+pyodbc:///?odbc_connect=DRIVER%3Dx",
        "databricks",
        "databricks://profile",
    ],
)
def test_what_can_be_meant_is_taken(uri: str) -> None:
    assert tracking_problem(uri) is None
    check_tracking_option(uri)


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("", "found ''"),
        ("mlruns", "found 'mlruns'"),
        ("file:///tmp/mlruns", "found"),
        ("htp://host", "found"),
        ("HTTP://host", "found"),
        ("http+x://host", "found"),
        ("http://", "no host"),
        ("http://:5000", "no host"),
        ("http://host:99999", "port"),
        ("http://host:0", "port"),
        ("http://host:http", "port"),
        ("http://ho$t", "host 'ho$t' is not a name"),
        ("http://1.2.3.999", "IP address"),
        ("http://[::1", "host"),
        ("http://[::zz]:5000", "host"),
        ("http://two words", "space"),
        ("http://host\n", "control characters"),
        ("http://host:5000/#/experiments/1", "a page"),
        ("http://host/?a=b", "a page"),
        (f"http://{'a' * 64}", "not a name"),
        (f"sqlite:///{'a' * 3000}", "3010 characters"),
        ("sqlite://mlflow.db", "three slashes"),
        ("sqlite:///", "no file"),
        ("sqlite:///runs/", "no file"),
        ("sqlite:///:memory:", "gone"),
        ("postgresql://host:99999/db", "port"),
        ("postgresql://host:five/db", "port"),
        ("postgresql://ho st/db", "space"),
        ("postgresql://ho$t/db", "not a name"),
        ("databricks://", "found"),
    ],
)
def test_what_cannot_be_meant_is_refused(uri: str, words: str) -> None:
    problem = tracking_problem(uri)
    assert problem is not None
    assert words in problem
    assert "write e.g. http://host:5000" in problem
    assert len(problem) < 350


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("http://me:s3cret@host", "MLFLOW_TRACKING_PASSWORD"),
        ("https://s3cret@host:5000", "MLFLOW_TRACKING_PASSWORD"),  # a token, perhaps
        ("postgresql://me:s3cret@host/db", "PGPASSWORD"),
        ("postgresql://me:s3/cret@host/db", "PGPASSWORD"),
        ("postgresql+psycopg2://host/db?user=me&password=s3cret", "PGPASSWORD"),
        ("mysql://me:s3cret@host/db", "file that the database's driver reads"),
        ("mssql+pyodbc:///?odbc_connect=UID%3Dme%3BPWD%3Ds3cret%3BX%3D1", "driver reads"),
        (f"postgresql://me:{'s3cret' * 40}@host/db", "PGPASSWORD"),
    ],
)
def test_a_password_has_no_place_on_the_command_line(uri: str, place: str) -> None:
    assert tracking_problem(uri) is None  # in a file it may stand
    with pytest.raises(UserError, match="leave user and password out") as caught:
        check_tracking_option(uri)
    said = str(caught.value)
    assert place in said
    for word in ("s3", "cret"):
        assert word not in said
        assert word not in masked(uri)


@pytest.mark.parametrize("uri", ["http://me:s3/cret@host", f"htp://me:{'s3cret' * 40}@host"])
def test_nor_is_a_password_shown_in_what_is_refused_anyway(uri: str) -> None:
    problem = tracking_problem(uri)
    assert problem is not None
    assert "s3" not in problem
    assert "cret" not in problem


@pytest.mark.parametrize(
    "command",
    [
        ["run", "quickstart"],
        ["sync", "quickstart"],
        ["ui"],
        ["export", "quickstart", "--out", "model"],
        ["nightly"],
        ["submit", "quickstart"],
    ],
)
def test_every_command_refuses_a_password(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*command, "--tracking", "http://me:s3cret@host"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("calsweep: --tracking: found 'http://***@host'")
    assert "MLFLOW_TRACKING_PASSWORD" in said
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def database(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def of_version(path: Path, version: str) -> None:
    path.write_bytes(empty_database())
    database(path, f"UPDATE alembic_version SET version_num = '{version}'")


def damaged(path: Path) -> None:
    whole = empty_database()
    path.write_bytes(whole[:100] + b"\xff" * 4000 + whole[4100:])


FOREIGN: dict[str, tuple[Callable[[Path], object], str]] = {
    "text": (lambda path: path.write_text("notes"), "not a sqlite database"),
    "empty": (lambda path: path.write_bytes(b""), "is empty; delete it"),
    "others": (lambda path: database(path, "CREATE TABLE cats (name)"), "another program .*cats"),
    "migrated": (
        lambda path: database(
            path,
            "CREATE TABLE alembic_version (version_num)",
            "INSERT INTO alembic_version VALUES ('1')",
            "CREATE TABLE runs (id)",
        ),
        "another program .*alembic_version, runs",
    ),
    "tableless": (
        lambda path: database(path, "CREATE TABLE t (x)", "DROP TABLE t"),
        "is an empty database",
    ),
    "damaged": (damaged, "damaged"),
    "older": (lambda path: of_version(path, "451aebb31d03"), "mlflow db upgrade sqlite:////"),
    "newer": (lambda path: of_version(path, "0123456789ab"), "another version of MLflow"),
    "directory": (lambda path: path.mkdir(), "is a directory"),
    "pipe": (lambda path: os.mkfifo(path), "is not a file"),
    "dangling": (lambda path: path.symlink_to("nowhere"), "is not a file"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_file_that_is_not_mlflows_is_refused_and_left_as_it_is(kind: str, tmp_path: Path) -> None:
    make, words = FOREIGN[kind]
    path = tmp_path / "mlflow.db"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    for use in (check_database_file, create_database):
        with pytest.raises(UserError, match=words) as caught:
            use(f"sqlite:///{path}")
        assert str(path) in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["mlflow.db"]
    assert before is None or path.read_bytes() == before


def test_a_file_that_can_become_or_is_mlflows_is_taken(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(empty_database())
    for name in ("mlflow.db", "new.db", "deep/down/new.db"):
        check_database_file(f"sqlite:///{tmp_path}/{name}")
    assert [p.name for p in tmp_path.iterdir()] == ["mlflow.db"]
    with pytest.raises(UserError, match=r"mlflow\.db is not a directory"):
        check_database_file(f"sqlite:///{tmp_path}/mlflow.db/new.db")
    with pytest.raises(UserError, match="too long"):
        check_database_file(f"sqlite:///{tmp_path}/{'x' * 300}.db")


@pytest.mark.parametrize("command", ["check", "run", "sync", "ui"])
def test_every_command_refuses_another_programs_database(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    database(tmp_path / "cats.db", "CREATE TABLE cats (name)")
    (tmp_path / "tiny.yaml").write_text(f"{SPEC}tracking: sqlite:///cats.db\n")
    if command == "sync":  # which asks for the sweep first
        (tmp_path / "runs/tiny").mkdir(parents=True)
        (tmp_path / "runs/tiny/spec.yaml").write_text(SPEC)
    before = (tmp_path / "cats.db").read_bytes()
    assert main([command, "tiny.yaml"]) == 2
    said = capsys.readouterr().err
    assert "cats.db: is a sqlite database of another program (its tables: cats)" in said
    assert said.count("\n") == 1
    assert (tmp_path / "cats.db").read_bytes() == before
