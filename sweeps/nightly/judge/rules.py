"""By what a night is judged: the settings, the columns of a verdict and its words."""

from __future__ import annotations

from typing import Annotated

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
"""The cell of what all trainings together took."""
_ROUNDING = 1e-9
"""By what part a change may fall short of the minimum: 0.15 − 0.1 is less than 0.05."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Judge(BaseModel):
    """How much must change before a night is called better or worse, and how surely.

    ``level`` is the chance of one false alarm or more in a night in which nothing changed,
    over everything that is tested in it. Three quarters of it are for the comparison with the
    baseline, a fifth is for trends, a twentieth for steps in the nights' history. Outside it
    stands what needs no test: a value that was finite for the baseline and is infinite, or no
    number, in a seed tonight is worse.
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
            raise ValueError(f"{unknown[0]!r} is not judged; write some of {', '.join(judged())}")
        return minimum

    @property
    def baseline_level(self) -> float:
        """The part of the level that the comparison with the baseline has."""
        return 0.75 * self.level

    @property
    def trend_level(self) -> float:
        """The part of the level that the trends have."""
        return 0.2 * self.level

    @property
    def step_level(self) -> float:
        """The part of the level that the steps have."""
        return 0.05 * self.level


def matters(change: float, minimum: float) -> bool:
    """Whether a change is at least the smallest that matters, either way."""
    return abs(change) >= minimum * (1 - _ROUNDING)
