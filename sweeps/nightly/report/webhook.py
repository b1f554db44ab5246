"""Tells somebody's server how the night went. Its address may hold a token: it is never shown."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit

from sweeps.errors import UserError
from sweeps.nightly.report.message import FORMS, Message

VARIABLE = "CALSWEEP_WEBHOOK"
PING_VARIABLE = "CALSWEEP_PING"
_AGENT = {"User-Agent": "calsweep"}
TIMEOUT = 10.0
WAITS = (0.0, 2.0, 5.0)
"""Seconds before each try: a server that is away for a moment is asked again."""


def check_webhook(url: str, name: str = "--webhook") -> None:
    """Raise ``UserError`` for what cannot be the address of a web server."""
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and url.isascii() and url.isprintable()
        # The name as it would be looked up: no empty label, and none of more than 63 characters.
        fine = fine and bool((parts.hostname or "").encode("idna"))
        _ = parts.port
    except ValueError:  # UnicodeError is one
        fine = False
    if not fine or " " in url:
        raise UserError(f"{name}: not a valid address; write e.g. https://host/path")


def shown(url: str) -> str:
    """The address without what could be a secret: its user, its path, its query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}/***"


class Webhook(NamedTuple):
    """Where a night is reported, and in which of the ``FORMS``."""

    form: str
    url: str


def read_webhook(text: str) -> Webhook:
    """``slack:URL``, ``teams:URL``, ``json:URL``, or a URL alone, which is told JSON.

    Raises ``UserError`` for what cannot be the address of a web server.
    """
    form, colon, url = text.partition(":")
    found = Webhook(form, url) if colon and form in FORMS else Webhook("json", text)
    check_webhook(found.url)
    return found


def report_to(webhook: Webhook, message: Message) -> str:
    """Tell the server how the night went, or did not; why that failed, or nothing."""
    return send(webhook.url, FORMS[webhook.form](message))


def ping(url: str) -> str:
    """Ask for the address of a dead man's switch: a night has arrived. Why that failed, or nothing.

    Whatever watches it (healthchecks.io, Uptime Kuma) raises the alarm when no request comes.
    """
    return _requested(urllib.request.Request(url, headers=_AGENT), url, "ping")


def send(url: str, message: Mapping[str, Any]) -> str:
    """POST the message as JSON; why that failed after a few tries, or nothing.

    A server that refuses the message (4xx) is not asked again. Redirections are not followed:
    the message would not go with them.
    """
    request = urllib.request.Request(
        url,
        data=json.dumps(message).encode(),
        headers={"Content-Type": "application/json", **_AGENT},
        method="POST",
    )
    return _requested(request, url, "webhook")


def _requested(request: urllib.request.Request, url: str, what: str) -> str:
    opener = urllib.request.build_opener(_Straight)
    reason = ""
    for wait in WAITS:
        time.sleep(wait)
        try:
            with opener.open(request, timeout=TIMEOUT):
                return ""
        except HTTPError as error:
            reason = f"it answers {error.code}"
            if error.code < 500:
                break
        except (OSError, HTTPException) as error:
            reason = f"{type(error).__name__}: {getattr(error, 'reason', '') or error}"
        except ValueError as error:  # what no library takes for an address; it may repeat it
            reason = type(error).__name__
            break
    # Whatever a library says may repeat the address.
    return f"the {what} at {shown(url)} failed: {reason.replace(url, shown(url))}"


class _Straight(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *details: Any) -> None:
        """A redirection is an answer as any other."""
