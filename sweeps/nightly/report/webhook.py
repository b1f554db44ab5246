"""Report the night to a web server. The address may contain a token, so it is never shown."""

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
"""Seconds before each attempt: a server that is briefly unavailable is tried again."""


def check_url(url: str, name: str) -> None:
    """Raise ``UserError``, which begins with ``name``, if the URL cannot be a web server's."""
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and url.isascii() and url.isprintable()
        # The name as it would be looked up: no empty label, and none longer than 63 characters.
        fine = fine and bool((parts.hostname or "").encode("idna"))
        _ = parts.port
    except ValueError:  # includes UnicodeError
        fine = False
    if not fine or " " in url:
        raise UserError(f"{name}: not a valid address; write e.g. https://host/path")


def shown(url: str) -> str:
    """The address without its possibly secret parts: user, path and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}/***"


class Webhook(NamedTuple):
    """Where a night is reported, and in which of the ``FORMS``."""

    form: str
    url: str


def read_webhook(text: str, name: str) -> Webhook:
    """Parse ``slack:URL``, ``teams:URL``, ``json:URL``, or a URL alone, which receives JSON.

    Raises ``UserError``, which begins with ``name``, if the URL cannot be that of a web server.
    """
    form, colon, url = text.partition(":")
    found = Webhook(form, url) if colon and form in FORMS else Webhook("json", text)
    check_url(found.url, name)
    return found


def report_to(webhook: Webhook, message: Message) -> str:
    """Report the night to the server; returns why that failed, or an empty string."""
    return send(webhook.url, FORMS[webhook.form](message))


def ping(url: str) -> str:
    """Request the URL of a dead man's switch; returns why that failed, or an empty string.

    The service behind it (healthchecks.io, Uptime Kuma) raises an alarm if no request arrives.
    """
    return _requested(urllib.request.Request(url, headers=_AGENT), url, "ping")


def send(url: str, message: Mapping[str, Any]) -> str:
    """POST the message as JSON; returns why that failed after a few attempts, or an empty string.

    A request that the server refuses (4xx) is not repeated. Redirects are not followed: they
    would drop the message.
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
            reason = f"it answered {error.code}"
            if error.code < 500:
                break
        except (OSError, HTTPException) as error:
            reason = f"{type(error).__name__}: {getattr(error, 'reason', '') or error}"
        except ValueError as error:  # not an address to the library; the error may repeat it
            reason = type(error).__name__
            break
    # A library's message may repeat the address.
    return f"the {what} at {shown(url)} failed: {reason.replace(url, shown(url))}"


class _Straight(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *details: Any) -> None:
        """Treat a redirect as any other answer."""
