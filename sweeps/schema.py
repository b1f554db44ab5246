"""The form of a sweep specification: what its YAML file may say.

Pydantic checks types and bounds here; what the names refer to is checked when a file is
loaded (``sweeps.spec``).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from calibration import post_hoc
from calibration.data import PROTOCOLS, Protocol
from calibration.methods import METHODS
from calibration.training import TrainingConfig
from sweeps.space import Space, resolve


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Choice(_Part):
    """A named thing with its options: ``mlp`` or ``{name: mlp, widths: [64, 64]}``."""

    name: str
    options: dict[str, Any] = {}


def _choice(written: Any) -> Any:
    if isinstance(written, str):
        return {"name": written}
    if isinstance(written, dict) and isinstance(written.get("name"), str):
        return {
            "name": written["name"],
            "options": {k: v for k, v in written.items() if k != "name"},
        }
    raise ValueError("write a name, or a mapping with 'name' and its options")


class Row(_Part):
    """One line of the comparison: a method, its knobs and its own training settings."""

    method: str
    training: dict[str, Any] = {}
    knobs: dict[str, Any] = {}


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
                raise ValueError(f"found {item!r}; write a method's name or {{name: {{knob: …}}}}")
            pairs += single.items()
    else:
        raise ValueError("write 'all', a list of names, or a mapping from names to their knobs")
    names = [name for name, _ in pairs]
    for name in names:
        if not isinstance(name, str):
            raise ValueError(f"found {name!r} as a name; write it in quotes")
    if len(set(names)) != len(names):
        raise ValueError(f"found {names!r}; a method stands there twice")
    return {name: _row(name, knobs) for name, knobs in pairs}


def _row(name: Any, written: Any) -> Any:
    if written is not None and not isinstance(written, dict):
        raise ValueError(f"found {written!r} for {name!r}; write its knobs as {{knob: value}}")
    knobs = dict(written or {})
    for knob in knobs:
        if not isinstance(knob, str):
            raise ValueError(f"found {knob!r} as a knob of {name!r}; knobs have names")
    own = {key: knobs.pop(key) for key in ("method", "training") if key in knobs}
    return {"method": name} | own | {"knobs": knobs}


def _protocol(written: Any) -> Any:
    if isinstance(written, str):
        if written not in PROTOCOLS:
            raise ValueError(f"unknown protocol; known: {', '.join(sorted(PROTOCOLS))}")
        return PROTOCOLS[written]
    return written


Sampler = Literal["grid", "random", "tpe"]
Objective = Literal["nll", "brier", "error", "ece", "ace", "refinement"]


class SearchConfig(_Part):
    """How hyperparameters are chosen, on validation data only.

    ``trials`` is the budget of each method on each dataset; with ``grid`` the grid's size
    decides instead, ``resolution`` points along every range.
    """

    sampler: Sampler = "tpe"
    trials: Annotated[int, Field(ge=1, le=100_000)] = 12
    resolution: Annotated[int, Field(ge=1, le=1000)] = 3
    objective: Objective = "nll"


class Resources(_Part):
    """What one trial occupies."""

    cpu: Annotated[float, Field(gt=0)] = 1
    gpu: Annotated[float, Field(ge=0)] = 0


class Table(_Part):
    """A published table to repeat: which of our rows stand in it, and what was published.

    ``rows`` maps the table's row names to ours, as the leaderboard calls them
    (``standard + temperature``; ``oracle``). ``published`` holds numbers by dataset, row
    and metric, as they stand in the publication; ``percent`` says that it gives shares in
    per cent, and ours are shown so too.
    """

    title: str
    rows: Annotated[dict[str, str], Field(min_length=1)]
    metrics: Annotated[list[str], Field(min_length=1)]
    published: dict[str, dict[str, dict[str, float]]] = {}
    percent: bool = False


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

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    datasets: Annotated[list[Annotated[Choice, BeforeValidator(_choice)]], Field(min_length=1)]
    model: Annotated[Choice, BeforeValidator(_choice)] = Choice(name="mlp")
    methods: Annotated[dict[str, Row], BeforeValidator(_rows), Field(min_length=1)]
    protocol: Annotated[Protocol, BeforeValidator(_protocol)] = PROTOCOLS["honest"]
    training: TrainingConfig = TrainingConfig()
    search: SearchConfig = SearchConfig()
    confirm_seeds: Annotated[int, Field(ge=1, le=1000)] = 5
    post_hoc: Literal["fast", "all"] | list[str] = "fast"
    bins: Annotated[int, Field(ge=2, le=10_000)] = 15
    large_test: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    table: Table | None = None
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    resources: Resources = Resources()

    def space(self, row: str) -> Space:
        """The search space of one of the spec's rows."""
        return resolve(self.methods[row].method, self.methods[row].knobs)

    def row_training(self, row: str) -> TrainingConfig:
        """The training settings of one row. Raises ``SettingError`` if they do not fit."""
        own = self.methods[row].training
        return TrainingConfig.checked(self.training.model_dump() | own, f"row {row!r}")

    @property
    def evaluation(self) -> Evaluation:
        """How confirmed networks are measured."""
        return Evaluation(self.bins, self.large_test)

    @property
    def maps(self) -> list[str]:
        """The post-hoc maps of the leaderboard; ``identity`` (no map) is always the first."""
        chosen = post_hoc.names(self.post_hoc) if isinstance(self.post_hoc, str) else self.post_hoc
        return ["identity", *(name for name in chosen if name != "identity")]
