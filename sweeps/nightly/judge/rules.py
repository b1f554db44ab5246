"""The rules of judging: the settings, and the columns and words of a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from sweeps.nightly.archive.results import CELL, judged

COST = "cost"
VERDICT_COLUMNS = [
    *(*CELL, "metric", "pairs", "baseline", "tonight"),
    *("difference", "low", "high", "p", "p_holm", "verdict"),
]
TREND_COLUMNS = [*CELL, "metric", "nights", "distinct", "first", "last", "slope", "total"]
TREND_COLUMNS += ["p", "p_holm", "verdict"]
STEP_COLUMNS = [*CELL, "metric", "nights", "distinct", "since", "last_before", "before", "after"]
STEP_COLUMNS += ["p", "p_holm", "verdict"]

IDENTICAL, UNCHANGED = "identical", "no change shown"
BETTER, WORSE, DRIFTING = "better", "worse", "drifting"
MISSING, NEW, TOO_FEW_PAIRS = "missing", "new", "too few seeds"
BUSY_MACHINE = "busy machine"
ALL = ("all sweeps", "all sweeps", "every row", "")
"""The cell for the cost of all trainings together."""
_ROUNDING = 1e-9
"""Relative tolerance of the minimum: in floating point 0.15 − 0.1 is less than 0.05."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Judge(BaseModel):
    """How much must change before a night is called better or worse, and at which level.

    ``level`` is the probability of one false alarm or more in a night in which nothing changed,
    over all of its tests. Three quarters of it go to the comparison with the baseline, a fifth
    to trends, a twentieth to steps in the nights' history. One rule is outside it and needs no
    test: a value that was finite in the baseline and is infinite or NaN in a seed tonight is
    worse.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    level: Annotated[float, Field(gt=0, lt=1)] = 0.05
    minimum: Annotated[dict[str, Positive], Field(min_length=1)] = {
        "ece": 0.01,
        "nll": 0.02,
        "error": 0.01,
    }
    cost: Positive = 0.1
    trend_nights: Annotated[int, Field(ge=3, le=60)] = 14

    @field_validator("minimum")
    @classmethod
    def _known(cls, minimum: dict[str, float]) -> dict[str, float]:
        unknown = [name for name in minimum if name not in judged()]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is not judged; choose from {', '.join(judged())}")
        return minimum

    @property
    def baseline_level(self) -> float:
        """The share of the level for the comparison with the baseline."""
        return 0.75 * self.level

    @property
    def trend_level(self) -> float:
        """The share of the level for trends."""
        return 0.2 * self.level

    @property
    def step_level(self) -> float:
        """The share of the level for steps."""
        return 0.05 * self.level


def value_key(line: Mapping[Any, Any]) -> tuple[str, ...]:
    """The cell and the metric of a line."""
    return tuple(str(line[name]) for name in (*CELL, "metric"))


def matters(change: float, minimum: float) -> bool:
    """Whether a change in either direction is at least the smallest that matters."""
    return abs(change) >= minimum * (1 - _ROUNDING)
