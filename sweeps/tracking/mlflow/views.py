"""Saved views of a sweep for MLflow's UI: which runs, in which order, which columns and charts.

MLflow keeps the views that its UI saves and shares in tags of the experiment, one each, and
lists them in its menu "Views"; an address with ``viewStateShareKey`` opens one. This module
writes the content of such tags. An MLflow without this feature shows its own default.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from calibration.metrics import METRICS, Shown
from sweeps.engine.plan import Plan
from sweeps.store import file_name
from sweeps.tracking.mlflow.run_content import (
    CALIBRATOR,
    CELL_TAG,
    DECIDED,
    PHASE,
    ROW,
    ROW_PLACE,
    SUPERSEDED,
    SWEEP,
    TESTED,
    WINNER,
)

TAG = "mlflow.sharedViewState."
DATASET = "calsweep.dataset"
LONGEST = 5000
"""Characters that every version of MLflow accepts in a tag of an experiment."""
CALIBRATORS_SHOWN = 12
MOST_BARS = 40
"""Most runs in a chart; a sweep with more confirmed runs is shown by its rows' means."""
NAME = "attributes.`Run Name`"
DECIDING_METRIC = "metrics.`selected/nll`"
"""Metrics of uncalibrated networks."""
_WIDER = {f"tags.`{name}`": 140 for name in (CALIBRATOR, DECIDED, TESTED, ROW)}
Mode = Literal["TABLE", "CHART"]
Json = dict[str, Any]


@dataclass(frozen=True)
class View:
    """One view: its key in addresses, its name in the menu, as table or charts, its content."""

    key: str
    name: str
    mode: Mode
    state: Json

    @property
    def tag(self) -> str:
        """The name of its tag."""
        return f"{TAG}{self.key}"

    def saved(self, before: str | None) -> str | None:
        """The tag's value; None if the one ``before`` is equivalent."""
        state = json.dumps(self.state, separators=(",", ":"))
        try:
            known = json.loads(before or "{}")
        except ValueError:
            known = {}
        if known.get("state") == state and known.get("name") == self.name:
            return None
        now = round(time.time() * 1000)
        about = {"name": self.name, "createdAt": known.get("createdAt", now), "updatedAt": now}
        return json.dumps(about | {"state": state}, separators=(",", ":"))


def view_key(sweep: str, what: str) -> str:
    """The key of a sweep's view: ``results``, ``charts`` or ``search``."""
    return f"calsweep-{file_name(sweep)}-{what}"


def runs_filter(sweep: str, phase: str) -> str:
    """The runs of one phase, except those superseded by a changed spec."""
    return (
        f"tags.`{SWEEP}` = '{sweep}' AND tags.`{PHASE}` = '{phase}' AND tags.`{SUPERSEDED}` IS NULL"
    )


def views(plan: Plan) -> list[View]:
    """The views of a sweep: confirmed runs as a table and in charts, and the search."""
    sweep = plan.spec.name
    searched = {n: None for cell in plan.cells.values() for n in cell.study.space.searched}
    parts = [
        View(view_key(sweep, "results"), f"{sweep}: results", "TABLE", _results(sweep)),
        View(view_key(sweep, "charts"), f"{sweep}: charts", "CHART", _charts(plan)),
    ]
    if searched:
        state = _search(sweep, list(searched))
        parts.append(View(view_key(sweep, "search"), f"{sweep}: search", "TABLE", state))
    return [view for view in parts if len(view.saved(None) or "") <= LONGEST]


def _results(sweep: str) -> Json:
    """The answer from left to right: winner, calibrator, deciding metric, then the rest."""
    answer = (ROW_PLACE, WINNER, CALIBRATOR, DECIDED, TESTED, ROW, DATASET)
    columns = [f"tags.`{name}`" for name in answer]
    columns.append("params.`seed`")
    ends = [f"test/{name}" for name in METRICS.names(Shown.LEADERBOARD)]
    columns += [f"metrics.`{name}`" for name in ("selected/nll", *ends)]
    return _runs(sweep, "confirm", f"tags.`{ROW_PLACE}`", columns)


def _search(sweep: str, hyperparameters: Sequence[str]) -> Json:
    columns = [f"metrics.`selected/{name}`" for name in _selected()]
    columns += [f"params.`{name}`" for name in hyperparameters]
    columns += [f"tags.`{name}`" for name in (DATASET, ROW, "calsweep.status")]
    return _runs(sweep, "search", DECIDING_METRIC, columns)


def _selected() -> list[str]:
    """Of the headline's metrics, those that every validation curve has."""
    return [name for name in METRICS.names(Shown.HEADLINE) if name in METRICS.curve()]


def _runs(sweep: str, phase: str, order: str, columns: Sequence[str]) -> Json:
    return {
        "searchFilter": runs_filter(sweep, phase),
        # Any order but by time lists the runs flat: otherwise they are nested under the sweep's.
        "orderByKey": order,
        "orderByAsc": True,
        "selectedColumns": list(columns),
        "columnOrder": [NAME, *columns, "runDateAndNestInfo", "duration"],
        "columnWidths": {NAME: 300, **{name: _WIDER.get(name, 95) for name in columns}},
        "runsHiddenMode": "SHOW_ALL",
    }


def _charts(plan: Plan) -> Json:
    evaluations = [name for name in plan.spec.calibrator_names if name != "identity"][
        :CALIBRATORS_SHOWN
    ]
    sections = {
        "What decides: validation NLL": [
            _bar("selected/nll"),
            *(_bar(f"selected/nll:{name}") for name in evaluations),
        ],
        "Test data": [
            {"type": "SCATTER", "xaxis": _axis("test/error"), "yaxis": _axis("test/ece")},
            *(_bar(f"test/{name}") for name in METRICS.names(Shown.HEADLINE)),
        ],
        "Training": [_line(name) for name in ("validation/nll", "validation/ece", "train/loss")],
    }
    shown = [name for name, charts in sections.items() if charts]
    folded = ["test", "validation", "selected", "train", "Model metrics"]
    return _runs(plan.spec.name, "confirm", f"tags.`{ROW_PLACE}`", []) | {
        "groupBy": _by_row() if _confirmed(plan) > MOST_BARS else None,
        "compareRunSections": [_section(name, display=name in shown) for name in shown + folded],
        "isAccordionReordered": True,
        "compareRunCharts": [
            {**chart, "uuid": f"{name} {number}", "metricSectionId": name}
            for name in shown
            for number, chart in enumerate(sections[name])
        ],
    }


def _confirmed(plan: Plan) -> int:
    return len(plan.cells) * plan.spec.confirm_seeds


def _by_row() -> Json:
    """Means over seeds. MLflow colours groups by a hash of their names, which may collide.

    Ungrouped runs have their row's colour, the bars of its seeds side by side.
    """
    keys = [{"mode": "tag", "groupByData": CELL_TAG}]
    return {"aggregateFunction": "average", "groupByKeys": keys}


def _axis(metric: str) -> Json:
    return {"key": metric, "type": "METRIC"}


def _bar(metric: str) -> Json:
    return {"type": "BAR", "metricKey": metric}


def _line(metric: str) -> Json:
    return {"type": "LINE", "metricKey": metric, "selectedMetricKeys": [metric]}


def _section(name: str, *, display: bool) -> Json:
    shape = {"columns": 2, "cardHeight": 320} if display else {}
    return {"uuid": name, "name": name, "display": display, "isReordered": True, **shape}
