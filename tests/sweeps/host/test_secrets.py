"""No password in what is shown, whoever put it there."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.errors import UserError
from sweeps.host.secrets import SECRETS, masked, without_secrets
from sweeps.tracking.mlflow import drivers
from sweeps.tracking.mlflow.access import check_access

WORD = "s3/cr%t'x"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:s3/cret@host/db", "postgresql://***@host/db"),
        ("http://host:5000/a@b", "http://host:5000/a@b"),
        ("see http://host:5000 and me@host", "see http://host:5000 and me@host"),
        ("postgresql://host/db?user=me&password=s3cret&x=1", None),
        ("connection failed: host=h password='s3 cret' user=me", None),
        ("tracking: http://me:s3cret@host:5000  # of the team", None),
    ],
)
def test_passwords_in_a_text_are_hidden_and_the_rest_is_kept(text: str, shown: str | None) -> None:
    expected = shown or text.replace("me:s3cret", "***").replace("'s3 cret'", "***").replace(
        "s3cret", "***"
    )
    assert masked(text) == expected


@given(st.text(st.characters(codec="ascii", exclude_categories=["C", "Z"]), min_size=4))
def test_a_uris_password_is_hidden_however_it_is_written(word: str) -> None:
    uri = f"postgresql://me:{quote(word, safe='')}@host/db"
    for form in (word, quote(word, safe=""), quote(word), repr(word)[1:-1]):
        if form not in "postgresql://***@host/db said: <":
            assert form not in masked(f"{uri} said: <{form}>", uri)


@pytest.mark.parametrize("name", SECRETS)
def test_secrets_of_the_environment_are_hidden_in_errors_but_not_in_a_users_own_text(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, WORD)
    assert without_secrets(f"the server said {WORD}") == "the server said ***"
    assert masked(f"name: {WORD}") == f"name: {WORD}"


def test_a_header_is_hidden_in_errors() -> None:
    assert without_secrets("{'Authorization': 'Basic YWRhOnBhc3M='}") == (
        "{'Authorization': 'Basic ***'}"
    )


def test_a_postgres_uri_means_the_driver_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"postgresql://me:{quote(WORD, safe='')}@host/db"
    for installed in drivers.POSTGRES:
        monkeypatch.setattr(drivers, "find_spec", lambda name, it=installed: name == it or None)
        assert drivers.with_driver(uri) == uri.replace("postgresql:", f"postgresql+{installed}:")
    monkeypatch.setattr(drivers, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"://\*\*\*@host/db: .*pip install psycopg2-binary"):
        check_access(uri)
    assert drivers.with_driver("sqlite:///x.db") == "sqlite:///x.db"
    assert drivers.with_driver("postgresql+psycopg://h/d") == "postgresql+psycopg://h/d"


def test_a_driver_that_is_missing_is_named() -> None:
    with pytest.raises(UserError, match="pip install mysqlclient"):
        check_access("mysql://host/db")
