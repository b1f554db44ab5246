"""What ``calsweep tracking up`` asks for and what it tells its server, without starting one."""

from __future__ import annotations

import fnmatch
from pathlib import Path

import pytest

from cluster.tracking import REQUIRED_SECRETS, Service, check_service, environment, own_names
from sweeps.cli.main import main

pytestmark = pytest.mark.slow

WORD = "correct horse/battery@staple%20"


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in REQUIRED_SECRETS:
        monkeypatch.setenv(name, WORD)
    for name in ("MLFLOW_BACKEND_STORE_URI", "PGPASSWORD"):
        monkeypatch.delenv(name, raising=False)


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["tracking", "up", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.strip().splitlines()) == 1
    return said.err


@pytest.mark.parametrize("name", REQUIRED_SECRETS)
def test_a_missing_secret_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(name)
    assert f"{name} is not set" in complaint(capsys)
    monkeypatch.setenv(name, "short")
    said = complaint(capsys)
    assert f"{name}: found 5 characters" in said
    assert "short" not in said


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--database", "postgresql://me:s3cret@host/db"], "PGPASSWORD"),
        (["--database", "postgresql://host/db?user=me&password=s3cret"], "PGPASSWORD"),
        (["--database", "mysql://host/db"], "found mysql://host/db"),
        (["--database", "nonsense"], "found nonsense"),
        (["--artifacts", "s3://key:s3cret@bucket"], "AWS_"),
        (["--host", "203.0.113.1"], "203.0.113.1"),
    ],
)
def test_what_cannot_be_used_is_refused_without_being_shown(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = complaint(capsys, *arguments)
    assert named in said
    assert "s3cret" not in said


def test_a_password_in_the_environments_uri_reaches_no_uri_of_the_server() -> None:
    uri = "postgresql://me:p%40ss%2Fword@host:5433/db?sslmode=require"
    found = environment(Service(database=uri, artifacts="/srv"))
    assert found["PGPASSWORD"] == "p@ss/word"
    assert found["MLFLOW_BACKEND_STORE_URI"].startswith("postgresql+psycopg2://me@host:5433/db?")
    assert "sslmode=require" in found["MLFLOW_BACKEND_STORE_URI"]
    assert [n for n, v in found.items() if "ss%2Fword" in v or "ss/word" in v] == ["PGPASSWORD"]


def test_only_its_names_are_allowed_hosts() -> None:
    service = Service("sqlite:///x.db", "/srv", names=("ml.example.org",), port=5000)
    patterns = environment(service)["MLFLOW_SERVER_ALLOWED_HOSTS"].split(",")

    def allowed(host: str) -> bool:
        return any(
            fnmatch.fnmatch(host, pattern) if "*" in pattern else host == pattern
            for pattern in patterns
        )

    for host in ("ml.example.org", "ml.example.org:8443", "localhost:5000", "[::1]:5000"):
        assert allowed(host), host
    for host in ("example.org", "ml.example.org.evil.net", "evil.net", ""):
        assert not allowed(host), host
    origins = environment(service)["MLFLOW_SERVER_CORS_ALLOWED_ORIGINS"].split(",")
    assert "https://ml.example.org" in origins
    assert not [origin for origin in origins if "*" in origin]


def test_it_is_called_by_its_address_unless_that_is_loopback() -> None:
    assert own_names("127.0.0.1") == ()
    assert own_names("192.0.2.7") == ("192.0.2.7",)
    assert own_names("2001:db8::7") == ("[2001:db8::7]",)
    assert "0.0.0.0" not in own_names("0.0.0.0")


def test_it_works_with_what_is_there() -> None:
    check_service(Service("sqlite:///x.db", "/srv"))
