"""The exported model in MLflow: logged beside its run, and registered under an alias."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.errors import UserError
from sweeps.export.package import Package
from sweeps.host.secrets import masked
from sweeps.spec import LoadedSpec
from sweeps.spec.schema import Spec
from sweeps.store import Store, file_name
from sweeps.tracking import TrackingError
from sweeps.tracking.mlflow.artifacts import chooses_place
from sweeps.tracking.mlflow.backend import default_uri
from sweeps.tracking.mlflow.database import create_database
from sweeps.tracking.mlflow.database_file import check_database_file
from sweeps.tracking.mlflow.drivers import with_driver
from sweeps.tracking.mlflow.failures import reason
from sweeps.tracking.mlflow.run_content import KEY, SWEEP
from sweeps.tracking.mlflow.settings import mlflow_settings

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

EXPORTED = "calsweep.exported"
"""The tag of a run made for a model whose own run is not in this MLflow: sweep/key."""
TRACKING, REGISTRY = "MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI"


@dataclass(frozen=True)
class Registration:
    """Where to register a model, and under which name."""

    name: str
    alias: str
    tracking: str
    registry: str


def wanted_registration(
    loaded: LoadedSpec,
    store: Store,
    dataset: str,
    *,
    name: str | None,
    alias: str,
    tracking: str | None,
) -> Registration | None:
    """Where to register: on request, or because a registry is configured; None if neither.

    The spec's own MLflow takes precedence over the environment's, since the runs are there, and
    the name defaults to the sweep's. Raises ``UserError`` for names that MLflow refuses,
    and for a file that is not an MLflow database.
    """
    environment: Mapping[str, str] = os.environ
    spec = loaded.spec
    server = tracking or spec.tracking.uri or environment.get(TRACKING)
    registry = environment.get(REGISTRY)
    if name is None and server is None and registry is None:
        return None
    if name is not None and (not name.strip() or re.search(r"[/:]", name)):
        raise UserError(f"--register: found {name!r}; a name has no / and no :")
    if not re.fullmatch(r"[\w-]{1,255}", alias, re.ASCII) or re.fullmatch(
        r"latest|v\d+", alias, re.IGNORECASE
    ):
        raise UserError(
            f"--alias: found {alias!r}; an alias has letters, digits, - and _, and is neither "
            "'latest' nor a version such as v1"
        )
    several = len(loaded.datasets) > 1
    own = file_name(f"{spec.name}-{dataset}" if several else spec.name)
    server = server or default_uri(store)
    for place in (server, registry or server):
        check_database_file(place)
    return Registration(name or own, alias, server, registry or server)


def register(
    registration: Registration, spec: Spec, store: Store, package: Package, model: Path
) -> str:
    """Log the model directory under its run and register it; returns its ``models:/…`` URI.

    Raises ``TrackingError`` if MLflow refuses or is unavailable.
    """
    try:
        with mlflow_settings():
            return _register(registration, spec, store, package, model)
    except Exception as error:  # MLflow, its database and its server raise many kinds
        uri = registration.registry
        raise TrackingError(f"cannot register in {masked(uri)}: {reason(error, uri)}") from error


def _register(
    registration: Registration, spec: Spec, store: Store, package: Package, model: Path
) -> str:
    from mlflow.entities import LoggedModelOutput
    from mlflow.tracking import MlflowClient

    create_database(registration.tracking)
    create_database(registration.registry)
    client = MlflowClient(with_driver(registration.tracking), with_driver(registration.registry))
    experiment = _experiment(client, registration.tracking, spec, store)
    run = _run(client, experiment, spec.name, package)
    about = package.description.about
    tags = {f"calsweep.{name}": str(about[name]) for name in ("sweep", "dataset", "row", "key")}
    logged = client.create_logged_model(
        experiment, name=file_name(registration.name), source_run_id=run, tags=tags
    )
    client.log_model_artifacts(logged.model_id, str(model))
    client.finalize_logged_model(logged.model_id, "READY")
    client.log_outputs(run, [LoggedModelOutput(logged.model_id, step=0)])
    _ensure_registered(client, registration.name)
    version = client.create_model_version(
        registration.name,
        # Not models:/ID, which MLflow looks up where its global settings point.
        source=logged.artifact_location,
        run_id=run,
        tags=tags,
        description=f"{about['row']} on {about['dataset']}, seed {about['seed']}",
        model_id=logged.model_id,
    )
    client.set_registered_model_alias(registration.name, registration.alias, version.version)
    return f"models:/{registration.name}@{registration.alias} (version {version.version})"


def _ensure_registered(client: MlflowClient, name: str) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _experiment(client: MlflowClient, uri: str, spec: Spec, store: Store) -> str:
    name = spec.tracking.experiment or spec.name
    found = client.get_experiment_by_name(name)
    if found is not None:
        if found.lifecycle_stage == "deleted":
            client.restore_experiment(found.experiment_id)
        return str(found.experiment_id)
    # As the publisher would create it, which may run later.
    directory = (store.local or Path.cwd()) / "mlartifacts" / file_name(name)
    place = directory.resolve().as_uri() if chooses_place(uri) else None
    return str(client.create_experiment(name, place))


def _run(client: MlflowClient, experiment: str, sweep: str, package: Package) -> str:
    """The run of the network's own training, or one made for its export."""
    key = package.chosen.trial.key
    own = f"tags.`{SWEEP}` = '{sweep}' and tags.`{KEY}` = '{key}'"
    made = f"tags.`{EXPORTED}` = '{sweep}/{key}'"
    for condition in (own, made):
        found = client.search_runs([experiment], filter_string=condition, max_results=1)
        if found:
            return str(found[0].info.run_id)
    # Without the publisher's tags: it would take the run for an incomplete one of its own.
    name = f"export {package.chosen.label} {package.chosen.dataset}"
    tags = {EXPORTED: f"{sweep}/{key}"}
    run = client.create_run(experiment, run_name=name, tags=tags)
    client.set_terminated(run.info.run_id)
    return str(run.info.run_id)
