"""Passwords in URIs: they are never shown, stored or logged."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

USERINFO = re.compile(r"://[^/\s]*@")


def masked(text: str, uri: str = "") -> str:
    """``text`` without the user and the password that ``uri``, or any URI in it, names."""
    text = USERINFO.sub("://***@", text)
    try:
        password = urlsplit(uri).password
    except ValueError:
        return text
    for secret in {password, unquote(password)} if password else ():
        text = text.replace(secret, "***")
    return text
