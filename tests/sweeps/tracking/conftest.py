"""Processes are forked here beside threads that may be talking to a server."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def _no_import_at_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow tries an import with every request. Forked meanwhile, a child waits for its lock.

    A module that is known to be absent is refused without one.
    """
    monkeypatch.setitem(sys.modules, "dbruntime.databricks_repl_context", None)
