"""The form of a sweep specification: what its YAML file may say.

Pydantic checks types and bounds here; what the names refer to is checked when a file is
loaded (``sweeps.spec``). Every field says what it means and in which unit: that is what
``calsweep check`` shows and what the JSON Schema tells an editor.
"""

from __future__ import annotations

import difflib
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from calibration import calibrators
from calibration.data import PROTOCOLS, Protocol
from calibration.methods import METHODS
from calibration.metrics import METRICS
from calibration.training import TrainingConfig
from sweeps.search.space import Space, resolve

DEFAULT_TRIALS = 12
ROW_KEYS = ("method", "training", "grid", "try_first")


def _about(description: str, unit: str = "", **bounds: Any) -> Any:
    """A field's bounds, what it means, and what its number counts."""
    return Field(
        description=description, json_schema_extra={"unit": unit} if unit else None, **bounds
    )


class _Part(BaseModel):
    # Strict: "12" and true are no numbers, 12.0 is not 12.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)


class Component(_Part):
    """A registered dataset or model with its options: ``mlp``, ``{name: mlp, widths: [64]}``."""

    name: str
    options: dict[str, Any] = {}


def _component(written: Any) -> Any:
    if isinstance(written, Component):
        return written
    if isinstance(written, str):
        return {"name": written}
    if isinstance(written, dict) and isinstance(written.get("name"), str):
        return {
            "name": written["name"],
            "options": {k: v for k, v in written.items() if k != "name"},
        }
    raise ValueError("write a name, or a mapping with 'name' and its options")


_WrittenComponent = Annotated[
    Component, BeforeValidator(_component, json_schema_input_type=str | dict[str, Any])
]


class Row(_Part):
    """One line of the comparison: a method, its knobs and its own training settings.

    ``grid`` lists the points of a grid search instead of its product; ``try_first`` lists
    known-good points that the search begins with.
    """

    method: str
    training: dict[str, Any] = {}
    knobs: dict[str, Any] = {}
    grid: list[dict[str, Any]] = []
    try_first: list[dict[str, Any]] = []


def _rows(written: Any) -> Any:
    if written == "all":
        return {name: {"method": name} for name in METHODS}
    if isinstance(written, dict):
        pairs = list(written.items())
    elif isinstance(written, list):
        pairs = []
        for item in written:
            single = {item: None} if isinstance(item, str) else item
            if not isinstance(single, dict) or len(single) != 1:
                raise ValueError("write a method's name, or {name: {knob: …}}, for every entry")
            pairs += single.items()
    else:
        raise ValueError("write 'all', a list of names, or a mapping from names to their knobs")
    names = [name for name, _ in pairs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice!r} stands there twice; give one of them a name and 'method:'")
    return {name: _row(name, knobs) for name, knobs in pairs}


def _row(name: Any, written: Any) -> Any:
    if isinstance(written, Row):
        return written
    if written is not None and not isinstance(written, dict):
        raise ValueError(f"found {written!r} for {name!r}; write its knobs as {{knob: value}}")
    knobs = dict(written or {})
    own = {key: knobs.pop(key) for key in ROW_KEYS if key in knobs}
    return {"method": name} | own | {"knobs": knobs}


def _protocol(written: Any) -> Any:
    if isinstance(written, str):
        if written not in PROTOCOLS:
            raise ValueError(f"unknown protocol; known: {', '.join(sorted(PROTOCOLS))}")
        return PROTOCOLS[written]
    return written


Sampler = Literal["grid", "random", "tpe", "gp", "cmaes", "nsga2"]
Scheduler = Literal["none", "asha", "median"]
Device = Literal["cpu", "cuda"]


def _list_objectives(schema: dict[str, Any]) -> None:
    schema["enum"] = list(METRICS.objectives())


_Metric = Annotated[
    str,
    Field(description="what is measured on validation data", json_schema_extra=_list_objectives),
]


def seconds(written: Any) -> Any:
    """Seconds from ``90``, ``"90s"``, ``"10m"``, ``"2h"`` or ``"1d"``."""
    if not isinstance(written, str):
        return written
    units = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
    number, unit = written[:-1], written[-1:]
    try:
        return float(number) * units[unit]
    except (KeyError, ValueError):
        raise ValueError("write seconds, or a number with its unit: 90s, 10m, 2h, 1d") from None


_DurationText = Annotated[str, Field(pattern=r"^[0-9.]+[smhd]$")]
Duration = Annotated[
    float,
    Field(gt=0, le=1e9),
    BeforeValidator(
        seconds, json_schema_input_type=Annotated[float, Field(gt=0, le=1e9)] | _DurationText
    ),
]


class SearchObjective(_Part):
    """What the search improves, measured on validation data."""

    metric: _Metric = "nll"
    direction: Annotated[
        Literal["minimize", "maximize"], _about("as the metric has it: `calsweep metrics`")
    ] = "minimize"

    @field_validator("metric")
    @classmethod
    def _known(cls, metric: str) -> str:
        known = METRICS.objectives()
        if metric not in known:
            near = difflib.get_close_matches(metric, known, n=1, cutoff=0.5)
            remedy = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            raise ValueError(f"unknown metric; {remedy}")
        return metric


def _objectives(written: Any) -> Any:
    def one(item: Any) -> Any:
        if isinstance(item, str):
            item = {"metric": item}
        if isinstance(item, dict) and item.get("metric") in METRICS.objectives():
            return {"direction": METRICS[item["metric"]].direction} | item
        return item

    return [one(item) for item in (written if isinstance(written, list) else [written])]


class SearchConfig(_Part):
    """How hyperparameters are chosen, on validation data only.

    ``trials`` and ``time`` bound the search of each method on each dataset; with ``grid``
    the grid's size decides instead, ``resolution`` points along every range.
    """

    sampler: Annotated[Sampler, _about("how the next trial is chosen")] = "tpe"
    trials: Annotated[
        int | None,
        _about(
            f"the budget of every search; {DEFAULT_TRIALS} when neither it nor time is given",
            "trials per method and dataset",
            ge=1,
            le=100_000,
        ),
    ] = None
    time: Annotated[
        Duration | None,
        _about("training time after which a search begins no more trials", "seconds"),
    ] = None
    resolution: Annotated[
        int, _about("how finely a grid cuts every range", "points per range", ge=1, le=1000)
    ] = 3
    objective: Annotated[
        list[SearchObjective],
        BeforeValidator(
            _objectives,
            json_schema_input_type=_Metric | SearchObjective | list[_Metric | SearchObjective],
        ),
        _about("what is improved; several keep their Pareto set", min_length=1, max_length=4),
    ] = [SearchObjective()]
    seed: Annotated[
        int | None, _about("of the samplers; the sweep's own seed by default", ge=0, lt=2**31)
    ] = None

    @property
    def limit(self) -> int | None:
        """How many trials a search has at most; None when only time bounds it."""
        return DEFAULT_TRIALS if self.trials is None and self.time is None else self.trials


def _named_as(field: str, short: Any, full: Any) -> BeforeValidator:
    """Lets ``asha`` stand for ``{name: asha}``."""
    return BeforeValidator(
        lambda written: {field: written} if isinstance(written, str) else written,
        json_schema_input_type=short | full,
    )


class SchedulerConfig(_Part):
    """Which search trials are stopped early, by their validation NLL so far.

    ``asha`` keeps the best 1/``reduction`` at every rung (epochs grace, grace · reduction,
    …); ``median`` stops what is worse than the median of earlier trials, every ``grace``
    epochs. Without ``grace`` a tenth of all epochs is meant.
    """

    name: Annotated[Scheduler, _about("the rule by which search trials are stopped early")] = "none"
    grace: Annotated[
        int | None,
        _about("no trial is stopped before; a tenth of its epochs by default", "epochs", ge=1),
    ] = None
    reduction: Annotated[
        int, _about("asha keeps the best 1/reduction at every rung", ge=2, le=100)
    ] = 3


class Tracking(_Part):
    """Where MLflow is: ``uri`` of a server or database (default: sqlite in the store)."""

    uri: Annotated[
        str | None, _about("MLflow's server or database; sqlite in the store by default")
    ] = None
    experiment: Annotated[
        str | None, _about("MLflow's experiment; the sweep's name by default", min_length=1)
    ] = None


class Resources(_Part):
    """What one trial occupies."""

    cpu: Annotated[float, _about("of the machine, for each trial", "CPUs", ge=0.01, le=10_000)] = 1
    gpu: Annotated[
        Annotated[float, Field(ge=0, le=1000)] | Literal["auto"],
        _about("shares below 1 let several trials use one; auto: by the network's size", "GPUs"),
    ] = 0.0
    device: Annotated[
        Device | None, _about("what trials train on; cuda by default where gpu is not 0, else cpu")
    ] = None

    @property
    def trains_on(self) -> Device:
        """The type of device of every trial: as part of its key it is known before it runs."""
        return self.device or ("cuda" if self.gpu else "cpu")


class PublishedTable(_Part):
    """A published table to repeat: which of our rows stand in it, and what was published.

    ``rows`` maps the table's row names to ours, as the leaderboard calls them
    (``standard + temperature``; ``oracle``). ``published`` holds numbers by dataset, row
    and metric, as they stand in the publication; ``percent`` says that it gives shares in
    per cent, and ours are shown so too.
    """

    title: Annotated[str, _about("the publication and the table in it")]
    rows: Annotated[
        dict[str, str],
        _about(
            "the table's rows: ours ('row', 'row + calibrator' or 'oracle') by its name",
            min_length=1,
        ),
    ]
    metrics: Annotated[list[str], _about("the table's columns", min_length=1)]
    published: Annotated[
        dict[str, dict[str, dict[str, float]]],
        _about("the published numbers by dataset, row and metric"),
    ] = {}
    percent: Annotated[bool, _about("shares are published, and shown, in per cent")] = False


class Evaluation(NamedTuple):
    """How confirmed networks are measured; another way is filed beside it."""

    bins: int = 15
    large_test: int = 0

    @property
    def tag(self) -> str:
        """A file name for it."""
        return f"{self.bins}-bins" + (f"-{self.large_test}-rows" if self.large_test else "")


class Spec(_Part):
    """One sweep: every method on every dataset, searched and then confirmed."""

    name: Annotated[
        str,
        _about(
            "of the sweep and of its directory in the store",
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
        ),
    ]
    datasets: Annotated[
        list[_WrittenComponent],
        _about("what is trained on, each by itself", min_length=1, max_length=1000),
    ]
    model: Annotated[_WrittenComponent, _about("the network that is trained")] = Component(
        name="mlp"
    )
    methods: Annotated[
        dict[str, Row],
        BeforeValidator(_rows, json_schema_input_type=Any),
        _about("the rows of the comparison: how is trained", min_length=1, max_length=1000),
    ]
    protocol: Annotated[
        Protocol,
        BeforeValidator(_protocol, json_schema_input_type=str | Protocol),
        _about("how the rows that are not test data are divided"),
    ] = PROTOCOLS["honest"]
    training: Annotated[TrainingConfig, _about("how long and with what every row trains")] = (
        TrainingConfig()
    )
    search: Annotated[SearchConfig, _about("how hyperparameters are chosen")] = SearchConfig()
    scheduler: Annotated[
        SchedulerConfig,
        _named_as("name", Scheduler, SchedulerConfig),
        _about("which search trials are stopped early"),
    ] = SchedulerConfig()
    confirm_seeds: Annotated[
        int,
        _about(
            "how often the best setting of a search is trained again, and tested",
            "trials per method and dataset",
            ge=1,
            le=1000,
        ),
    ] = 5
    calibrators: Annotated[
        Literal["fast", "all"] | list[str],
        _about("the calibrators every confirmed network is evaluated with"),
    ] = "fast"
    bins: Annotated[int, _about("of ECE and its kin in the tables", "bins", ge=2, le=10_000)] = 15
    large_test: Annotated[
        int,
        _about(
            "further test rows, where a dataset can draw them", "test rows", ge=0, le=10_000_000
        ),
    ] = 0
    table: Annotated[PublishedTable | None, _about("a published table to repeat")] = None
    seed: Annotated[int, _about("all random numbers of the sweep follow it", ge=0, lt=2**31)] = 0
    resources: Annotated[Resources, _about("what one trial occupies")] = Resources()
    retries: Annotated[
        int,
        _about(
            "how often a trial whose process died is continued", "times per trial", ge=0, le=100
        ),
    ] = 3
    time_limit: Annotated[
        Duration | None, _about("a trial that trains longer has failed", "seconds")
    ] = None
    tracking: Annotated[Tracking, _named_as("uri", str, Tracking), _about("where MLflow is")] = (
        Tracking()
    )

    def space(self, row: str) -> Space:
        """The search space of one of the spec's rows."""
        chosen = self.methods[row]
        return resolve(chosen.method, chosen.knobs, chosen.grid, chosen.try_first)

    def row_training(self, row: str) -> TrainingConfig:
        """The training settings of one row. Raises ``SettingError`` if they do not fit."""
        own = self.methods[row].training
        return TrainingConfig.checked(self.training.model_dump() | own, f"row {row!r}")

    @property
    def evaluation(self) -> Evaluation:
        """How confirmed networks are measured."""
        return Evaluation(self.bins, self.large_test)

    @property
    def calibrator_names(self) -> list[str]:
        """The calibrators of the leaderboard; ``identity`` (no calibrator) is always the first."""
        chosen = (
            calibrators.names(self.calibrators)
            if isinstance(self.calibrators, str)
            else self.calibrators
        )
        return ["identity", *(name for name in chosen if name != "identity")]
