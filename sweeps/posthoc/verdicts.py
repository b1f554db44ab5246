"""One calibrator on stored predictions: fitted, measured, resampled."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor

from calibration.calibrators import Calibrator
from calibration.evaluation import (
    FOLDS,
    LabelledLogits,
    cross_fitted,
    fitted_calibrator,
    floor_of,
    interval_metrics,
    predictions_of,
    scores,
)
from calibration.metrics import METRICS, Shown
from calibration.metrics.bootstrap import Resampled, interval_of, resampled_metrics
from calibration.metrics.class_view import ClassView, class_view

MANY_ROWS = 20_000


@dataclass(frozen=True)
class EvaluationSetup:
    """The data all calibrators are fitted to and measured on, and how.

    Without ``test`` a calibrator is measured on the validation rows, each by a calibrator fitted on
    the folds without it.
    """

    validation: LabelledLogits
    test: LabelledLogits | None
    bins: int
    seed: int
    resamples: int
    folds: int

    @property
    def measured(self) -> LabelledLogits:
        """The rows that the tables are about."""
        return self.test or self.validation

    @cached_property
    def groups(self) -> int | None:
        """The number of groups among the measured rows, None if they belong to none."""
        groups = self.measured.groups
        return None if groups is None else len(groups.unique())


@dataclass(frozen=True)
class Judged:
    """A fitted calibrator and its measurements.

    ``row`` holds the columns of the tidy table; ``resampled`` the metrics that are compared,
    on resamples that are the same for every calibrator; ``confidence`` and ``correct`` (N,) are for
    reliability diagrams, ``classes`` for those of classes (None of a top-label calibrator).
    """

    calibrator: Calibrator
    row: dict[str, Any]
    resampled: dict[str, Resampled]
    confidence: Tensor
    correct: Tensor
    classes: ClassView | None


def judge(name: str, setting: EvaluationSetup) -> Judged:
    """Fit the calibrator ``name`` and measure it; raises whatever the calibrator raises."""
    validation, bins, seed = setting.validation, setting.bins, setting.seed
    start = time.perf_counter()
    fitted = fitted_calibrator(name, validation)
    seconds = time.perf_counter() - start
    held_back = cross_fitted(
        name,
        validation.logits,
        validation.labels,
        seed=seed,
        folds=setting.folds,
        groups=validation.groups,
        weights=validation.weights,
    )
    # With a test set the validation rows only choose: all metrics would take too long.
    only = None if setting.test is None else METRICS.names(Shown.LEADERBOARD)
    predictions = predictions_of(held_back, validation)
    measured = chosen_by = scores(predictions, bins=bins, only=only)
    test = setting.measured
    if setting.test is not None:
        predictions = predictions_of(fitted(test.logits), test)
        measured = scores(predictions, bins=bins)
    resampled = resampled_metrics(
        predictions,
        metrics=[metric for metric in interval_metrics() if metric in measured],
        bins=bins,
        resamples=setting.resamples,
        seed=seed,
        groups=test.groups,
    )
    floor, floor_q95 = floor_of(predictions, test, bins=bins, seed=seed)
    row: dict[str, Any] = dict(measured)
    for metric, values in resampled.items():
        row[f"{metric}_low"], row[f"{metric}_high"] = interval_of(
            metric, values, groups=setting.groups
        )
    row |= {"floor": floor, "floor_q95": floor_q95}
    row |= {f"validation/{metric}": value for metric, value in chosen_by.items()}
    row |= {"converged": fitted.converged, "fit_seconds": seconds}
    main = METRICS.names(Shown.HEADLINE)
    compared = {metric: resampled[metric] for metric in main if metric in resampled}
    classes = class_view(predictions, bins, test.groups)
    return Judged(fitted, row, compared, predictions.confidence, predictions.correct, classes)


def resamples_for(rows: int) -> int:
    """1000, or fewer for many rows, whose resamples cost more: at least 400."""
    return min(1000, max(400, MANY_ROWS * 1000 // rows))


def folds_for(rows: int) -> int:
    """Five; two for many rows, since half of them fit a calibrator almost as well as 80 %."""
    return FOLDS if rows <= MANY_ROWS else 2
