"""The form of a sweep specification: what its YAML file may contain.

Pydantic checks types and bounds here; what the names refer to is checked when a file is loaded
(``sweeps.spec.meaning``). Every field has a description and a unit, for ``calsweep check`` and for
the JSON Schema.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, Field

from calibration import calibrators
from calibration.data import PROTOCOLS, Protocol
from calibration.hyperparameters import SettingError, Value
from calibration.learners import learner
from calibration.learners.estimator import TRAINING_SETTINGS, Estimator
from calibration.methods import METHODS
from calibration.training_config import TrainingConfig
from sweeps.search.config import Scheduler, SchedulerConfig, SearchConfig
from sweeps.search.domains import extremes, parse_hyperparameter
from sweeps.search.fields import STRICT, Duration, about
from sweeps.search.space import Space, resolve

ROW_KEYS = ("method", "training", "grid", "try_first")


class _Part(BaseModel):
    model_config = STRICT


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
    """One line of the comparison: a method, its hyperparameters and its own training settings.

    ``grid`` lists the points of a grid search instead of its product; ``try_first`` lists
    known-good points that the search begins with.
    """

    method: str
    training: dict[str, Any] = {}
    hyperparameters: dict[str, Any] = {}
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
                raise ValueError(
                    "write a method's name, or {name: {hyperparameter: …}}, for every entry"
                )
            pairs += single.items()
    else:
        raise ValueError(
            "write 'all', a list of names, or a mapping from names to their hyperparameters"
        )
    names = [name for name, _ in pairs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice!r} is listed twice; give one of them a name and 'method:'")
    return {name: _row(name, hyperparameters) for name, hyperparameters in pairs}


def _row(name: Any, written: Any) -> Any:
    if isinstance(written, Row):
        return written
    if written is not None and not isinstance(written, dict):
        raise ValueError(
            f"found {written!r} for {name!r}; write its hyperparameters as "
            "{hyperparameter: value}"
        )
    hyperparameters = dict(written or {})
    own = {key: hyperparameters.pop(key) for key in ROW_KEYS if key in hyperparameters}
    return {"method": name} | own | {"hyperparameters": hyperparameters}


def _protocol(written: Any) -> Any:
    if isinstance(written, str):
        if written not in PROTOCOLS:
            raise ValueError(f"unknown protocol; known: {', '.join(sorted(PROTOCOLS))}")
        return PROTOCOLS[written]
    return written


Device = Literal["cpu", "cuda"]


def _named_as(field: str, short: Any, full: Any) -> BeforeValidator:
    """Lets ``asha`` stand for ``{name: asha}``."""
    return BeforeValidator(
        lambda written: {field: written} if isinstance(written, str) else written,
        json_schema_input_type=short | full,
    )


class Tracking(_Part):
    """Where MLflow is: ``uri`` of a server or database (default: sqlite in the store)."""

    uri: Annotated[
        str | None, about("MLflow's server or database; sqlite in the store by default")
    ] = None
    experiment: Annotated[
        str | None, about("MLflow's experiment; the sweep's name by default", min_length=1)
    ] = None


class Resources(_Part):
    """What one trial occupies."""

    cpu: Annotated[float, about("of the machine, for each trial", "CPUs", ge=0.01, le=10_000)] = 1
    gpu: Annotated[
        Annotated[float, Field(ge=0, le=1000)] | Literal["auto"],
        about("shares below 1 let several trials use one; auto: by the network's size", "GPUs"),
    ] = 0.0
    device: Annotated[
        Device | None, about("what trials train on; cuda by default where gpu is not 0, else cpu")
    ] = None

    @property
    def trains_on(self) -> Device:
        """The type of device of every trial: as part of its key it is known before it runs."""
        return self.device or ("cuda" if self.gpu else "cpu")


class PublishedTable(_Part):
    """A published table to reproduce: which of our rows it has, and what was published.

    ``rows`` maps the table's row names to ours, as the leaderboard calls them
    (``standard + temperature``; ``oracle``). ``published`` holds numbers by dataset, row
    and metric, as in the publication; ``percent``: it gives shares in per cent, and ours are shown
    in the same way. ``quoted`` holds, in the same form, rows that the publication took from others:
    they follow below the table, marked, without values of ours.
    """

    title: Annotated[str, about("the publication and the table in it")]
    rows: Annotated[
        dict[str, str],
        about(
            "the table's rows: ours ('row', 'row + calibrator' or 'oracle') by its name",
            min_length=1,
        ),
    ]
    metrics: Annotated[list[str], about("the table's columns", min_length=1)]
    published: Annotated[
        dict[str, dict[str, dict[str, float]]],
        about("the published numbers by dataset, row and metric"),
    ] = {}
    quoted: Annotated[
        dict[str, dict[str, dict[str, float]]],
        about("rows that the publication quotes from others, by dataset, row and metric"),
    ] = {}
    percent: Annotated[bool, about("shares are published, and shown, in per cent")] = False


class Evaluation(NamedTuple):
    """How confirmed networks are measured; evaluations with other settings are stored beside it."""

    bins: int = 15
    large_test: int = 0

    @property
    def tag(self) -> str:
        """Its name in the store."""
        return f"{self.bins}-bins" + (f"-{self.large_test}-rows" if self.large_test else "")


class Spec(_Part):
    """One sweep: every row on every dataset, searched and then confirmed."""

    name: Annotated[
        str,
        about(
            "of the sweep and of its directory in the store",
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
        ),
    ]
    datasets: Annotated[
        list[_WrittenComponent],
        about("the data: every row is trained on each of them", min_length=1, max_length=1000),
    ]
    model: Annotated[_WrittenComponent, about("the network that is trained")] = Component(
        name="mlp"
    )
    methods: Annotated[
        dict[str, Row],
        BeforeValidator(_rows, json_schema_input_type=Any),
        about("the rows of the comparison: ways of training", min_length=1, max_length=1000),
    ]
    protocol: Annotated[
        Protocol,
        BeforeValidator(_protocol, json_schema_input_type=str | Protocol),
        about("how the rows that are not test data are divided"),
    ] = PROTOCOLS["honest"]
    training: Annotated[TrainingConfig, about("how long and with what settings rows train")] = (
        TrainingConfig()
    )
    search: Annotated[SearchConfig, about("how hyperparameters are chosen")] = SearchConfig()
    scheduler: Annotated[
        SchedulerConfig,
        _named_as("name", Scheduler, SchedulerConfig),
        about("which search trials are stopped early"),
    ] = SchedulerConfig()
    confirm_seeds: Annotated[
        int,
        about(
            "how often the best setting of a search is trained again, and tested",
            "trials per method and dataset",
            ge=1,
            le=1000,
        ),
    ] = 5
    calibrators: Annotated[
        Literal["fast", "all"] | list[str],
        about("the calibrators every confirmed network is evaluated with"),
    ] = "fast"
    ensembles: Annotated[
        bool, about("whether the confirmed networks of every row are also measured as one")
    ] = False
    bins: Annotated[int, about("of ECE and similar metrics", "bins", ge=2, le=10_000)] = 15
    large_test: Annotated[
        int,
        about("further test rows, where a dataset can draw them", "test rows", ge=0, le=10_000_000),
    ] = 0
    equivalence: Annotated[
        dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]],
        about(
            "the largest difference of no consequence, by metric; 0: any difference counts; by "
            "default that of the metric (calsweep metrics)",
            "the metric's",
        ),
    ] = {}
    table: Annotated[PublishedTable | None, about("a published table to reproduce")] = None
    seed: Annotated[int, about("of all random numbers of the sweep", ge=0, lt=2**31)] = 0
    resources: Annotated[Resources, about("what one trial occupies")] = Resources()
    cohort: Annotated[
        Annotated[int, Field(ge=1, le=1000)] | Literal["auto"],
        about(
            "trials of one shape that a process trains together; auto: as many as fit into memory, "
            "while that is measured to be faster (CPUs only). Changes no number",
            "trials at once, at most",
        ),
    ] = 1
    retries: Annotated[
        int,
        about("how often a trial whose process died is continued", "times per trial", ge=0, le=100),
    ] = 3
    time_limit: Annotated[
        Duration | None, about("a trial that trains longer has failed", "seconds")
    ] = None
    tracking: Annotated[Tracking, _named_as("uri", str, Tracking), about("where MLflow is")] = (
        Tracking()
    )

    def space(self, row: str) -> Space:
        """The search space of one of the spec's rows."""
        chosen = self.methods[row]
        return resolve(chosen.method, chosen.hyperparameters, chosen.grid, chosen.try_first)

    def row_training(self, row: str) -> TrainingConfig:
        """The training settings of one row. Raises ``SettingError`` if they do not fit.

        For an estimator they are those that it uses; its ``epochs`` are its maximum of rounds.
        """
        own, kind = self.methods[row].training, learner(self.methods[row].method)
        if not issubclass(kind, Estimator):
            return TrainingConfig.checked(self.training.model_dump() | own, f"row {row!r}")
        for name in own:
            if name not in TRAINING_SETTINGS:
                raise SettingError(
                    f"row {row!r}: {name!r} does not apply to {self.methods[row].method}, which "
                    f"trains no network; of 'training' it uses {', '.join(TRAINING_SETTINGS)}"
                )
        shared = self.training.model_dump(include=set(TRAINING_SETTINGS))
        rounds = {"epochs": self._rounds(row, kind)}
        return TrainingConfig.checked(shared | own | rounds, f"row {row!r}")

    def _rounds(self, row: str, kind: type[Estimator]) -> int:
        """How many rounds an estimator trains at most, whatever is suggested."""
        field = kind.Hyperparameters.model_fields.get("rounds")
        if field is None:
            return 1
        chosen = self.methods[row]
        points = [point["rounds"] for point in chosen.grid if "rounds" in point]
        try:
            found, _ = parse_hyperparameter(chosen.hyperparameters.get("rounds", field.default))
            ends = [found] if isinstance(found, Value) else list(extremes(found))
            return max(1, *(int(end) for end in ends + points))
        except (TypeError, ValueError):  # the check of the row's space reports what is wrong
            return int(field.default)

    @property
    def evaluation(self) -> Evaluation:
        """How confirmed networks are measured."""
        return Evaluation(self.bins, self.large_test)

    @property
    def ensemble_seeds(self) -> tuple[int, ...]:
        """The seeds of every ensemble's members; empty if none is wanted."""
        return tuple(map(self.confirm_seed, range(self.confirm_seeds))) if self.ensembles else ()

    def confirm_seed(self, repeat: int) -> int:
        """The seed of a cell's confirm trial number ``repeat``."""
        return self.seed + 1 + repeat

    @property
    def calibrator_names(self) -> list[str]:
        """The calibrators of the leaderboard; ``identity`` (no calibrator) is always the first."""
        chosen = (
            calibrators.names(self.calibrators)
            if isinstance(self.calibrators, str)
            else self.calibrators
        )
        return ["identity", *(name for name in chosen if name != "identity")]
