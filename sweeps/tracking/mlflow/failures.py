"""Readable reasons for failures of MLflow."""

from __future__ import annotations

from sweeps.host.secrets import without_secrets

_LONGEST_REASON = 300


def reason(error: Exception, uri: str) -> str:
    """What went wrong with MLflow, in one line; a web page is only mentioned, not shown."""
    message, page, _ = f"{type(error).__name__}: {error}".partition("Response body: '<")
    line = " ".join(message.split())
    line = without_secrets(f"{line} The answer was a web page, not MLflow's" if page else line, uri)
    # The request is named at the beginning, and the cause of the failure at the end.
    half = _LONGEST_REASON // 2
    return line if len(line) <= _LONGEST_REASON else f"{line[:half]} … {line[-half:]}"
