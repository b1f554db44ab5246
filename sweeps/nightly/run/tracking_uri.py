"""Where a suite's nights are tracked."""

from __future__ import annotations

import os

from sweeps.errors import UserError
from sweeps.nightly.archive.nights import Nights
from sweeps.spec.tracking_uri import tracking_problem


def tracking_uri(nights: Nights, given: str | None) -> str:
    """Where a suite's nights are tracked: as given, as MLflow's own variable says, or beside them.

    Raises ``UserError`` if that does not name a server or a database.
    """
    uri = given or os.environ.get("MLFLOW_TRACKING_URI", "")
    if not uri:
        return f"sqlite:///{(nights.directory / 'mlflow.db').resolve()}"
    problem = tracking_problem(uri)
    if problem is not None:
        raise UserError(f"{'--tracking' if given else 'MLFLOW_TRACKING_URI'}: {problem}")
    return uri
