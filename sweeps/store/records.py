"""The stored values of a trial: its record, and the evaluations of its calibrators.

Both are validated when read: a file may be complete, with a correct checksum, and still hold
values that no training or evaluation could have produced, because it was edited.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from calibration.metrics import METRICS
from calibration.metrics.row_scores import ROW_MEANS, RowScores
from sweeps.store.codec import DamagedError

TrialStatus = Literal["done", "failed", "pruned"]
_ROUNDING = 1e-6
_Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class StoredFile(BaseModel):
    """A record's entry for one of its files."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: str
    size: int


class ReferenceTimes(BaseModel):
    """Times of the reference work interleaved with a training: sums over ``repeats``.

    ``cpu_seconds`` is CPU time, ``seconds`` wall-clock time, which is longer if other processes
    used the processor too. ``version`` names the work.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int
    repeats: int = 0
    cpu_seconds: _Seconds = 0.0
    seconds: _Seconds = 0.0


class TrialOutcome(BaseModel):
    """The outcome of a trial.

    ``config`` is its ``TrialConfig`` and ``environment`` what it ran with, as JSON values.
    ``curve`` has one entry per epoch and ``times`` when each ended, in seconds since 1970;
    ``validation`` the metrics at ``best_epoch``, the epoch of the network that is kept.
    ``seconds`` (wall clock) and ``cpu_seconds`` are those of its epochs, or its share of those of
    its cohort. ``resources`` is what it was trained with. ``lineage`` is the same
    for a training and its continuation from a checkpoint. A trial that failed before training
    has only its configuration, its environment and its reason.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    config: dict[str, Any]
    environment: dict[str, str]
    status: TrialStatus
    reason: str = ""
    traceback: str = ""
    resources: dict[str, float | str] = {}
    lineage: str = ""
    curve: tuple[dict[str, float], ...] = ()
    times: tuple[float, ...] = ()
    best_epoch: int = 0
    epochs: int = 0
    seconds: _Seconds = 0.0
    cpu_seconds: _Seconds = 0.0
    reference: ReferenceTimes | None = None
    parameters: int = 0
    validation: dict[str, float] = {}

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if self.status == "failed":
            if not self.reason:
                raise ValueError("it failed, but has no reason")
        elif self.status == "done" and not self.validation:
            raise ValueError("it has no validation metrics")
        _check_bounds("validation", self.validation)
        if len(self.times) < len(self.curve):
            raise ValueError(f"its curve has {len(self.curve)} epochs, but {len(self.times)} times")
        _check_epochs(self.curve)
        return self

    @property
    def gpu(self) -> float:
        """The share of a GPU that the trial had; a trial that never trained had none."""
        return float(self.resources.get("gpu", 0.0))

    @property
    def company(self) -> int:
        """The most networks that it was trained together with, itself included."""
        return int(self.resources.get("company", 1))

    @property
    def apart(self) -> str:
        """Why it was trained or measured one by one in its cohort; empty if it was not."""
        return str(self.resources.get("apart", ""))

    @property
    def seconds_alone(self) -> float:
        """The time of the training; NaN if it was trained in a cohort, where none has its own.

        Costs of rows are compared by it: without a GPU it is CPU time, which other work on the
        machine does not lengthen.
        """
        if self.company > 1:
            return math.nan
        return self.seconds if self.gpu else self.cpu_seconds or self.seconds

    @property
    def span(self) -> tuple[float, float] | None:
        """When its training began and ended, in seconds since 1970; None if it never began.

        Times are taken at the end of every epoch. A training continued from a checkpoint began
        earlier than its total seconds suggest.
        """
        if not self.times:
            return None
        return min(self.times[0], self.times[-1] - self.seconds), self.times[-1]


class TrialRecord(TrialOutcome):
    """A trial's outcome as stored: under its key, with the files of one attempt."""

    key: str
    attempt: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    files: dict[str, StoredFile]

    @property
    def summary(self) -> TrialSummary:
        """The record without its curve: small enough to keep for every trial."""
        return TrialSummary(
            *(self.key, self.attempt, self.lineage, self.status, self.reason, self.seconds),
            epochs=self.epochs,
            nll=self.validation.get("nll", math.nan),
            gpu=self.gpu,
            seconds_alone=self.seconds_alone,
            span=self.span,
            environment=self.environment,
        )


class TrialSummary(NamedTuple):
    """What a sweep keeps in memory of every trial that has ended."""

    key: str
    attempt: str
    lineage: str
    status: TrialStatus
    reason: str
    seconds: float
    epochs: int
    nll: float
    gpu: float
    seconds_alone: float
    span: tuple[float, float] | None
    environment: Mapping[str, str]


class EvaluationRecord(BaseModel):
    """The evaluation of one calibrator of a trial, or why there is none (``failed``).

    ``version`` names the metrics, the calibrator and the procedure that made it, ``made`` the
    time, in seconds since 1970. The rest is as in ``CalibratorEvaluation``. ``has_oracle`` is set
    for the uncalibrated network: the oracle has an evaluation, too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: str
    made: float
    failed: str = ""
    has_oracle: bool = False
    test: dict[str, float] = {}
    intervals: dict[str, tuple[float, float]] = {}
    floor: tuple[float, float] | None = None
    validation: dict[str, float] = {}
    large: dict[str, float] = {}
    converged: bool = True
    fit_seconds: float = 0.0

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if not self.failed and (not self.test or self.floor is None):
            raise ValueError("it has no test metrics")
        for part, measured in {
            "test": self.test,
            "validation": self.validation,
            "large": self.large,
        }.items():
            _check_bounds(part, measured)
        return self


def checked_scores(values: Mapping[str, Any], evaluation: EvaluationRecord) -> RowScores:
    """Stored row scores, if their means match the evaluation. Raises ``DamagedError``."""
    try:
        # Scores of data without groups or weights may have been stored before they existed.
        known = {"groups": None, "weights": None, "classes": None, **values}
        scores = RowScores(**{name: known[name] for name in RowScores._fields})
        means = {metric: scores.of(metric) for metric in ROW_MEANS}
        shapes = {tuple(scores.confidence.shape), tuple(scores.correct.shape)}
        shapes |= {tuple(rows.shape) for rows in means.values() if rows is not None}
        described = (rows for rows in (scores.groups, scores.weights) if rows is not None)
        shapes |= {tuple(rows.shape) for rows in described}
        drawn = {} if scores.class_view is None else scores.class_view.drawn
        shapes |= {(int(bins.rows.sum()),) for bins in drawn.values()}
    except (AttributeError, LookupError, TypeError, ValueError, RuntimeError) as error:
        raise DamagedError(f"no evaluation leaves such scores ({error})") from error
    if len(shapes) != 1 or len(*shapes) != 1:
        raise DamagedError("its scores are not one for each test row")
    for metric, rows in means.items():
        mean = math.nan if rows is None else float(rows.mean())
        measured = evaluation.test.get(metric, mean)
        # In float32 each row is rounded by at most 6e-8 of itself.
        same = math.isclose(mean, measured, rel_tol=_ROUNDING, abs_tol=_ROUNDING)
        if not (same or math.isnan(measured)):
            raise DamagedError(f"its {metric} is {mean:g}, but the evaluation's is {measured:g}")
    return scores


def _check_bounds(part: str, measured: Mapping[str, float]) -> None:
    for name, value in measured.items():
        low, high = METRICS[name].bounds if name in METRICS else (-math.inf, math.inf)
        # NaN is possible: no search prefers it.
        if value < low - _ROUNDING or value > high + _ROUNDING:
            raise ValueError(f"its {part} {name} is {value:g}")


def _check_epochs(curve: Sequence[Mapping[str, float]]) -> None:
    before = 0.0
    for row in curve:
        epoch = row.get("epoch", math.nan)
        if not before < epoch < math.inf:
            raise ValueError(f"its curve has epoch {epoch:g} after {before:g}")
        before = epoch
