"""Where a suite's nights are tracked."""

from __future__ import annotations

import os

from sweeps.errors import UserError
from sweeps.nightly.archive.nights import Nights
from sweeps.spec.tracking_uri import tracking_problem


def tracking_uri(nights: Nights, given: str | None) -> str:
    """The tracking URI of a suite's nights: as given, MLflow's variable, or a database beside them.

    Raises ``UserError`` if it does not name a server or a database.
    """
    uri = given or os.environ.get("MLFLOW_TRACKING_URI", "")
    if not uri:
        return f"sqlite:///{(nights.directory / 'mlflow.db').resolve()}"
    problem = tracking_problem(uri)
    if problem is not None:
        raise UserError(f"{'--tracking' if given else 'MLFLOW_TRACKING_URI'}: {problem}")
    return uri
