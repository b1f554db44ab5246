"""Passwords, which are never shown, stored or logged."""

from __future__ import annotations

import os
import re
from urllib.parse import quote, quote_plus, unquote

HIDDEN = "***"
USERINFO = re.compile(
    r"://(?:[^/\s]*@"
    # A password may contain a slash, though it should not; after a port it is a path.
    r"|[^/\s:@]*:(?!\d{1,5}/)[^\s\"'<>]*@)"
)
NAMED = re.compile(
    # ODBC's name for it, also as quoted within a URI.
    r"((?:\b|%3B|%26)(?:(?:ssl)?password|passwd|pwd)(?:=|%3D))"
    r"(?:'[^']*'|(?:(?!%3B|%26)[^\s&'\",;])+)",
    re.IGNORECASE,
)
HEADER = re.compile(r"\b((?:Basic|Bearer) )[\w+/=.~-]{8,}")
PASSWORD = re.compile(r"://[^/\s:@]*:(.*)@")
SECRETS = (
    *("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN"),
    *("MLFLOW_AUTH_ADMIN_PASSWORD", "MLFLOW_FLASK_SERVER_SECRET_KEY"),
    *("PGPASSWORD", "RAY_AUTH_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
)
"""Environment variables whose values must never be shown."""


def masked(text: str, uri: str = "") -> str:
    """``text`` without the user and password of ``uri`` or of any URI in it."""
    text = NAMED.sub(rf"\1{HIDDEN}", USERINFO.sub(f"://{HIDDEN}@", text))
    password = PASSWORD.search(uri)
    return _hidden(text, [password[1]] if password else [])


def without_secrets(text: str, uri: str = "") -> str:
    """``masked``, and without the secrets in the environment: for messages of other software.

    Not for a user's own text, in which a word may happen to be a password.
    """
    text = HEADER.sub(rf"\1{HIDDEN}", masked(text, uri))
    return _hidden(text, [os.environ.get(name, "") for name in SECRETS])


def _hidden(text: str, secrets: list[str]) -> str:
    """``text`` without the secrets, however they are quoted."""
    plain = {form for secret in secrets for form in (secret, unquote(secret))}
    forms = {f(p) for p in plain for f in (str, quote, _quoted, quote_plus, _escaped)}
    for form in sorted(forms - {""}, key=len, reverse=True):
        text = text.replace(form, HIDDEN)
    return text


def _quoted(secret: str) -> str:
    return quote(secret, safe="")


def _escaped(secret: str) -> str:
    return repr(secret)[1:-1]
