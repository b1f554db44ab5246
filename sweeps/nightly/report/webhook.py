"""Tells somebody's server how the night went. Its address may hold a token: it is never shown."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

from sweeps.errors import UserError
from sweeps.nightly.judge.verdict import Verdict

VARIABLE = "CALSWEEP_WEBHOOK"
TIMEOUT = 10.0
WAITS = (0.0, 2.0, 5.0)
"""Seconds before each try: a server that is away for a moment is asked again."""


def check_webhook(url: str) -> None:
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
        raise UserError("--webhook: not a valid address; write e.g. https://host/path")


def shown(url: str) -> str:
    """The address without what could be a secret: its user, its path, its query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}/***"


def report_to(url: str, verdict: Verdict, report: Path) -> str:
    """Tell the server how the night went; why that failed, or nothing."""
    message = {
        "suite": verdict.suite,
        "night": verdict.night,
        "verdict": verdict.overall,
        "sentences": verdict.sentences,
        "report": str(report.resolve()),
    }
    return send(url, message)


def report_failure(url: str, suite: str, night: str, reason: str) -> str:
    """Tell the server that the night came to no verdict; why that failed, or nothing."""
    message = {"suite": suite, "night": night, "verdict": "incomplete", "sentences": [reason]}
    return send(url, message)


def send(url: str, message: Mapping[str, Any]) -> str:
    """POST the message as JSON; why that failed after a few tries, or nothing.

    A server that refuses the message (4xx) is not asked again. Redirections are not followed:
    the message would not go with them.
    """
    request = urllib.request.Request(
        url,
        data=json.dumps(message).encode(),
        headers={"Content-Type": "application/json", "User-Agent": "calsweep"},
        method="POST",
    )
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
    return f"the webhook at {shown(url)} failed: {reason.replace(url, shown(url))}"


class _Straight(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *details: Any) -> None:
        """A redirection is an answer as any other."""
