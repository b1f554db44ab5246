"""MLflow as a tracking backend: one parent run per sweep, one child run per trial."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from sweeps.engine.plan import Plan
from sweeps.host.secrets import masked
from sweeps.store import Store
from sweeps.tracking.mlflow.database_file import database_path
from sweeps.tracking.mlflow.drivers import with_driver
from sweeps.tracking.mlflow.failures import reason
from sweeps.tracking.mlflow.publisher import Publisher
from sweeps.tracking.mlflow.settings import mlflow_settings


def default_uri(store: Store) -> str:
    """The sqlite database in the store's directory; for a remote store, in the current one."""
    directory = Path.cwd() if store.local is None else store.local
    return f"sqlite:///{(directory / 'mlflow.db').resolve()}"


class MlflowBackend:
    """An MLflow server or database; ``parent_run`` is the parent of the sweep's own run."""

    def __init__(self, uri: str, plan: Plan, store: Store, parent_run: str | None = None) -> None:
        self.uri = with_driver(uri)
        self.place = masked(self.uri)
        self.answers_always = database_path(self.uri) is not None
        self.plan = plan
        self.store = store
        self.parent_run = parent_run

    def settings(self) -> AbstractContextManager[object]:
        """MLflow's settings in this process while it is used."""
        return mlflow_settings()

    def connect(self, answered: Callable[[], None]) -> Publisher:
        """A publisher that has found the sweep's runs."""
        return Publisher(self.uri, self.plan, self.store, self.parent_run, answered)

    def reason(self, error: Exception) -> str:
        """What went wrong with MLflow."""
        return reason(error, self.uri)
