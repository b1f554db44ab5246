"""MLflow's settings in this process while calsweep uses it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module

from sweeps.host.environment import variables
from sweeps.host.process import quiet

ENVIRONMENT = {
    # The recorder waits and retries; a silently repeated request could create two runs.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
CHATTY = ("alembic", "mlflow", "mlflow.store.db.utils")


@contextmanager
def mlflow_settings() -> Iterator[None]:
    """MLflow imported, quiet and with short timeouts; the user's environment takes precedence."""
    with variables({name: os.environ.get(name, value) for name, value in ENVIRONMENT.items()}):
        with suppress(ImportError):  # reported where it is used
            import_module("mlflow")  # it sets the levels of its loggers
        with quiet(dict.fromkeys(CHATTY, logging.CRITICAL)):
            yield
