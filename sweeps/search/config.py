"""How hyperparameters are searched: ``search`` and ``scheduler`` of a spec."""

from __future__ import annotations

import difflib
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, field_validator

from calibration.metrics import METRICS
from sweeps.search.fields import STRICT, Duration, about
from sweeps.search.samplers import SAMPLERS

DEFAULT_TRIALS = 12

Scheduler = Literal["none", "asha", "median"]


def _list_objectives(schema: dict[str, Any]) -> None:
    schema["enum"] = list(METRICS.objectives())


_Metric = Annotated[
    str,
    Field(description="what is measured on validation data", json_schema_extra=_list_objectives),
]


class _Part(BaseModel):
    model_config = STRICT


class SearchObjective(_Part):
    """What the search improves, measured on validation data."""

    metric: _Metric = "nll"
    direction: Annotated[
        Literal["minimize", "maximize"], about("that of the metric; see `calsweep metrics`")
    ] = "minimize"

    @field_validator("metric")
    @classmethod
    def _known(cls, metric: str) -> str:
        known = METRICS.objectives()
        if metric in METRICS and metric not in known:
            listed = ", ".join(known)
            raise ValueError(f"not measured while a network trains; choose one of {listed}")
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

    ``trials`` and ``time`` bound the search of each row on each dataset; with the sampler ``grid``
    the grid's size decides instead, with ``resolution`` points along every range.
    """

    sampler: Annotated[str, about("how the next trial is chosen")] = "tpe"
    trials: Annotated[
        int | None,
        about(
            f"the budget of every search; {DEFAULT_TRIALS} when neither it nor time is given",
            "trials per method and dataset",
            ge=1,
            le=100_000,
        ),
    ] = None
    time: Annotated[
        Duration | None,
        about("training time after which a search begins no more trials", "seconds"),
    ] = None
    resolution: Annotated[
        int, about("how finely a grid cuts every range", "points per range", ge=1, le=1000)
    ] = 3
    objective: Annotated[
        list[SearchObjective],
        BeforeValidator(
            _objectives,
            json_schema_input_type=_Metric | SearchObjective | list[_Metric | SearchObjective],
        ),
        about("what is improved; several keep their Pareto set", min_length=1, max_length=4),
    ] = [SearchObjective()]
    # None: a round leaves workers idle until its last trial has ended, and large rounds cost
    # search quality (tests/benchmarks/bench_asking.py).
    batch: Annotated[
        int | None,
        about(
            "suggestions made at once, each round after the results of the one before, which a "
            "scheduler compares it with; by default one whenever there is room",
            "trials per round",
            ge=1,
            le=100_000,
        ),
    ] = None
    seed: Annotated[
        int | None, about("of the samplers; the sweep's own seed by default", ge=0, lt=2**31)
    ] = None

    @property
    def is_grid(self) -> bool:
        """Whether the grid's size bounds the search. Raises ``UnknownNameError``."""
        return SAMPLERS[self.sampler].is_grid

    @property
    def limit(self) -> int | None:
        """How many trials a search has at most; None if only time bounds it."""
        return DEFAULT_TRIALS if self.trials is None and self.time is None else self.trials


class SchedulerConfig(_Part):
    """Which search trials are stopped early, by their validation NLL so far.

    ``asha`` keeps the best 1/``reduction`` at every rung (epochs grace, grace · reduction,
    …); ``median`` stops what is worse than the median of earlier trials, every ``grace``
    epochs. By default, ``grace`` is a tenth of all epochs.
    """

    name: Annotated[Scheduler, about("the rule by which search trials are stopped early")] = "none"
    grace: Annotated[
        int | None,
        about("no trial is stopped before; a tenth of its epochs by default", "epochs", ge=1),
    ] = None
    reduction: Annotated[
        int, about("asha keeps the best 1/reduction at every rung", ge=2, le=100)
    ] = 3
