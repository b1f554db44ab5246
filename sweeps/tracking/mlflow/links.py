"""Addresses of a sweep in MLflow's UI."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from sweeps.errors import UserError
from sweeps.host.secrets import masked
from sweeps.tracking.mlflow.drivers import with_driver
from sweeps.tracking.mlflow.failures import reason
from sweeps.tracking.mlflow.run_content import CALIBRATOR, KEY, PHASE, ROW, SWEEP
from sweeps.tracking.mlflow.server import ServerError
from sweeps.tracking.mlflow.settings import mlflow_settings
from sweeps.tracking.mlflow.sweep_content import TABLE
from sweeps.tracking.mlflow.views import DATASET, TAG, runs_filter, view_key

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

_KIND = "workflowType=machine_learning"
"""Without it MLflow's UI shows a new user its pages for language models."""
_COMPARED = 20
"""Most runs on the compare page: more make it slow and unreadable."""


@dataclass(frozen=True)
class TrackedSweep:
    """A sweep in MLflow: its name, its experiment, and its own run."""

    name: str
    experiment: str
    run: str


def links_to(uri: str, base: str, name: str | None) -> dict[str, dict[str, str]]:
    """The links of one sweep, or of all, on the server at ``base``.

    Raises ``UserError`` if there is no such sweep, ``ServerError`` if MLflow does not answer.
    """
    with mlflow_settings():
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient

        client = MlflowClient(tracking_uri=with_driver(uri))
        try:
            known = tracked_sweeps(client)
            if name is not None and name not in known:
                there = ", ".join(known) or "none"
                raise UserError(f"MLflow has no sweep {name!r}; there are: {there}")
            chosen = known if name is None else {name: known[name]}
            return {sweep: sweep_links(client, base, found) for sweep, found in chosen.items()}
        except MlflowException as error:
            about = f"the MLflow server at {masked(uri)} does not answer: {reason(error, uri)}"
            raise ServerError(about) from None


def tracked_sweeps(client: MlflowClient) -> dict[str, TrackedSweep]:
    """The sweeps on a server or in a database, by name, newest first."""
    experiments = [e.experiment_id for e in client.search_experiments(max_results=1000)]
    runs = client.search_runs(
        experiments, f"tags.`{PHASE}` = 'sweep'", max_results=1000, order_by=["start_time DESC"]
    )
    found: dict[str, TrackedSweep] = {}
    for run in runs:
        name = run.data.tags.get(SWEEP, run.data.tags.get(KEY, ""))
        found.setdefault(name, TrackedSweep(name, run.info.experiment_id, run.info.run_id))
    return found


def sweep_links(client: MlflowClient, base: str, sweep: TrackedSweep) -> dict[str, str]:
    """The pages of a sweep, each with its address on the server at ``base``."""
    root = f"{base.rstrip('/')}/#/experiments/{sweep.experiment}"
    own = f"{root}/runs/{sweep.run}"
    links = {
        "results": f"{root}/runs?{_view(client, sweep, 'results', 'confirm')}",
        "charts": f"{root}/runs?{_view(client, sweep, 'charts', 'confirm')}",
    }
    compared = compared_runs(client, sweep)
    if len(compared) > 1:
        pages = {"runs": _list(compared), "experiments": _list([sweep.experiment])}
        query = f"{urlencode(pages, quote_via=quote)}&{_KIND}"  # the page expects the runs first
        links["compare"] = f"{base.rstrip('/')}/#/compare-runs?{query}"
    return links | {
        "search": f"{root}/runs?{_view(client, sweep, 'search', 'search')}",
        "table": f"{own}/artifacts/{TABLE}?{_KIND}",
        "report": f"{own}/artifacts/report.html?{_KIND}",
        "sweep": f"{own}?{_KIND}",
    }


def compared_runs(client: MlflowClient, sweep: TrackedSweep) -> list[str]:
    """One confirmed run, of the first seed, for each row: the best rows of every dataset.

    Best is the smallest cross-fitted validation NLL with the row's own calibrator.
    """
    runs = client.search_runs(
        [sweep.experiment], runs_filter(sweep.name, "confirm"), max_results=5000
    )
    first: dict[tuple[str, str], Run] = {}
    for run in sorted(runs, key=lambda run: int(run.data.params.get("seed", 0))):
        first.setdefault((run.data.tags.get(DATASET, ""), run.data.tags.get(ROW, "")), run)
    datasets: dict[str, list[Run]] = {}
    for (dataset, _), run in first.items():
        datasets.setdefault(dataset, []).append(run)
    each = _COMPARED // max(len(datasets), 1)
    best = [run for group in datasets.values() for run in sorted(group, key=_score)[: max(each, 1)]]
    return [run.info.run_id for run in best[:_COMPARED]]


def _score(run: Run) -> float:
    calibrator = run.data.tags.get(CALIBRATOR, "identity")
    name = "selected/nll" if calibrator == "identity" else f"selected/nll:{calibrator}"
    return float(run.data.metrics.get(name, float("inf")))


def _view(client: MlflowClient, sweep: TrackedSweep, what: str, phase: str) -> str:
    """The query of a saved view or, for an unfinished sweep without one, of its runs."""
    query = {"compareRunsMode": "CHART"} if what == "charts" else {}
    key = view_key(sweep.name, what)
    if f"{TAG}{key}" in client.get_experiment(sweep.experiment).tags:
        return f"{_KIND}&{urlencode(query | {'viewStateShareKey': key}, quote_via=quote)}"
    query |= {"searchFilter": runs_filter(sweep.name, phase)}
    query |= {"orderByKey": "metrics.`selected/nll`", "orderByAsc": "true"}
    return f"{_KIND}&{urlencode(query, quote_via=quote)}"


def _list(names: list[str]) -> str:
    return json.dumps(names, separators=(",", ":"))
