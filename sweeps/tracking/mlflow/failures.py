"""What went wrong with MLflow, for people."""

from __future__ import annotations

from sweeps.host.secrets import without_secrets

_LONGEST_REASON = 300


def reason(error: Exception, uri: str) -> str:
    """What went wrong with MLflow, in one line; of a web page nothing but that it came."""
    message, page, _ = f"{type(error).__name__}: {error}".partition("Response body: '<")
    line = " ".join(message.split())
    line = without_secrets(f"{line} It was a web page, not MLflow" if page else line, uri)
    # What was tried stands at the beginning, and at the end why it failed.
    half = _LONGEST_REASON // 2
    return line if len(line) <= _LONGEST_REASON else f"{line[:half]} … {line[-half:]}"
