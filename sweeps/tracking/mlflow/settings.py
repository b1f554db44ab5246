"""How MLflow behaves in this process while calsweep uses it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module

from sweeps.host.environment import variables
from sweeps.host.process import quiet

ENVIRONMENT = {
    # Who waits and tries again is the recorder; and a request repeated unseen could make two runs.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
CHATTY = ("alembic", "mlflow", "mlflow.store.db.utils")


@contextmanager
def mlflow_settings() -> Iterator[None]:
    """MLflow imported, silent and impatient; what the user's environment says comes first."""
    with variables({name: os.environ.get(name, value) for name, value in ENVIRONMENT.items()}):
        with suppress(ImportError):  # who uses it says so
            import_module("mlflow")  # it sets the levels of its loggers
        with quiet(dict.fromkeys(CHATTY, logging.CRITICAL)):
            yield
