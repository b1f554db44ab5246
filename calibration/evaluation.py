"""From logits to numbers: every metric for every calibrator, with intervals and floors.

Calibrators are fitted on validation data. To choose among calibrators, they must not be scored on
the rows they were fitted on, so validation metrics are cross-fitted: each fold is scored by a
calibrator fitted on the others.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from calibration import calibrators, metrics
from calibration.metrics import METRICS, Shown
from calibration.metrics.bootstrap import intervals_of, resampled_metrics
from calibration.metrics.class_view import class_view
from calibration.metrics.panels import panel_of
from calibration.metrics.predictions import Predictions
from calibration.metrics.row_scores import RowScores, row_scores
from calibration.row_weights import mean_one
from calibration.seeds import derive_seed

FOLDS = 5
EVALUATION_VERSION = 5
"""Raise this when a change here alters the numbers of an evaluation, or which ones it stores:
folds, the noise floor, the number and seed of resamples, the scores of rows and classes."""


@dataclass(frozen=True)
class CalibratorEvaluation:
    """The evaluation of one trained network with one calibrator.

    ``test`` holds the metrics, ``intervals`` their 95 % bootstrap intervals, ``floor`` the ECE
    that these confidences would have if the model were calibrated (mean and 95 % quantile).
    ``validation`` holds the cross-fitted metrics on which choices are based, ``large`` the values
    of a few metrics on a larger test draw, if there is one, ``rows`` the scores of each test row
    and of each class.
    """

    test: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    floor: tuple[float, float]
    validation: dict[str, float]
    converged: bool = True
    fit_seconds: float = 0.0
    large: dict[str, float] = field(default_factory=dict)
    rows: RowScores | None = field(default=None, repr=False)


def evaluation_version(calibrator: str) -> str:
    """A digest of all versions that an evaluation's numbers depend on.

    These are the versions of the calibrator, of every metric in it, and of the procedure.
    Predictions whose evaluation has another version are evaluated again.
    """
    versions = {
        "evaluation": EVALUATION_VERSION,
        "calibrator": calibrators.CALIBRATORS[calibrator].version,
        "metrics": {name: METRICS[name].version for name in METRICS.names()},
    }
    return hashlib.sha256(json.dumps(versions, sort_keys=True).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class LabelledLogits:
    """Logits and labels of one part of the data, and the true posterior if it is known.

    ``groups``, ``times`` and ``weights`` are those of the rows, if the data has them: see
    ``Part``.
    """

    logits: Tensor
    labels: Tensor
    posterior: Tensor | None = field(default=None, repr=False)
    groups: Tensor | None = field(default=None, repr=False)
    times: Tensor | None = field(default=None, repr=False)
    weights: Tensor | None = field(default=None, repr=False)


def predictions_of(output: Tensor, data: LabelledLogits) -> Predictions:
    """A calibrator's output on these data, in the form that metrics take.

    ``output`` is probability rows, or confidences in the classes of the largest logits.
    """
    rows = output.ndim == 2
    target = data.labels if rows else data.logits.argmax(-1) == data.labels
    return Predictions.of(output, target, data.posterior, data.weights)


def scores(
    predictions: Predictions, *, bins: int, only: Sequence[str] | None = None
) -> dict[str, float]:
    """The metric panel of a calibrator's output.

    Omits metrics that need more than is known, and those that ``only`` does not name.
    """
    possible = METRICS.names(needs=predictions.known)
    wanted = possible if only is None else [name for name in only if name in possible]
    return panel_of(predictions, bins=bins, metrics=wanted)


def fitted_calibrator(name: str, on: LabelledLogits) -> calibrators.Calibrator:
    """The calibrator fitted on these rows, weighted; the scale of the weights does not matter."""
    weights = None if on.weights is None else mean_one(on.weights)
    return calibrators.fit(name, on.logits, on.labels, weights)


def cross_fitted(
    name: str,
    logits: Tensor,
    labels: Tensor,
    *,
    seed: int,
    folds: int = FOLDS,
    groups: Tensor | None = None,
    times: Tensor | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """The calibrator's output on each row, fitted on the folds that do not contain it.

    A fold consists of whole ``groups``, or with ``times`` of one block of them.
    """
    fold = _folds(labels, seed, folds, groups, times)
    pieces = [
        fitted_calibrator(
            name,
            LabelledLogits(
                logits[fold != number],
                labels[fold != number],
                weights=_weighing(weights, fold != number),
            ),
        )(logits[fold == number])
        for number in fold.unique()
    ]
    return torch.cat(pieces)[fold.argsort(stable=True).argsort()]


def _weighing(weights: Tensor | None, rows: Tensor) -> Tensor | None:
    """The weights of these rows; None (all equal) if they are all 0."""
    if weights is None or not bool(weights[rows].any()):
        return None
    return weights[rows]


def _folds(
    labels: Tensor,
    seed: int,
    folds: int,
    groups: Tensor | None = None,
    times: Tensor | None = None,
) -> Tensor:
    """A fold for every row, drawn at random and stratified by class.

    Groups are dealt out by their most frequent class and their size; times are cut into
    blocks of about equally many rows, with equal times in the same block.
    """
    if times is not None:
        _, number, rows = times.unique(return_inverse=True, return_counts=True)
        middle = rows.cumsum(0) - (rows + 1) // 2
        block = (middle * folds) // len(times)
        numbered: Tensor = block.unique(return_inverse=True)[1]
        return numbered[number]
    generator = torch.Generator().manual_seed(derive_seed(seed, "folds"))
    if groups is not None:
        present, member = groups.unique(return_inverse=True)
        classes = int(labels.max()) + 1
        cells = torch.bincount(member * classes + labels, minlength=len(present) * classes)
        table = cells.view(-1, classes)
        shuffled = torch.randperm(len(present), generator=generator)
        by_size = shuffled[table.sum(-1)[shuffled].argsort(descending=True, stable=True)]
        order = by_size[table.argmax(-1)[by_size].argsort(stable=True)]
        dealt = torch.empty_like(order)
        dealt[order] = torch.arange(len(present)) % min(folds, len(present))
        return dealt[member]
    shuffled = torch.randperm(len(labels), generator=generator)
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    fold = torch.empty_like(labels)
    fold[by_class] = torch.arange(len(labels)) % min(folds, len(labels))
    return fold


def evaluate_calibrator(
    name: str,
    validation: LabelledLogits,
    test: LabelledLogits,
    *,
    large: LabelledLogits | None = None,
    bins: int = 15,
    seed: int = 0,
) -> CalibratorEvaluation:
    """Fit the calibrator ``name`` on validation predictions and evaluate it on test predictions."""
    start = time.perf_counter()
    fitted = fitted_calibrator(name, validation)
    fit_seconds = time.perf_counter() - start
    output = fitted(test.logits)
    predictions = predictions_of(output, test)
    measured, intervals, floor = measure(predictions, test, bins=bins, seed=seed)
    held_back = cross_fitted(
        name,
        validation.logits,
        validation.labels,
        seed=seed,
        groups=validation.groups,
        times=validation.times,
        weights=validation.weights,
    )
    judged = scores(predictions_of(held_back, replace(validation, posterior=None)), bins=bins)
    rows = row_scores(output, test.labels, test.logits.argmax(-1), test.groups, test.weights)
    view = class_view(predictions, bins, test.groups)
    return CalibratorEvaluation(
        test=measured,
        intervals=intervals,
        floor=floor,
        validation=judged,
        converged=fitted.converged,
        fit_seconds=fit_seconds,
        large={} if large is None else measure_large(fitted(large.logits), large, bins=bins),
        rows=rows._replace(classes=None if view is None else view.tables),
    )


def measure_large(output: Tensor, test: LabelledLogits, *, bins: int) -> dict[str, float]:
    """The metrics on a large draw; as its noise floor is near zero, no intervals are needed."""
    return scores(predictions_of(output, test), bins=bins, only=large_metrics())


def large_metrics() -> list[str]:
    """The metrics of a large draw: the main ones, and those that need the posterior."""
    return [
        name
        for name, metric in METRICS.items()
        if metric.shown == Shown.HEADLINE or metric.needs == "posterior"
    ]


def interval_metrics() -> list[str]:
    """The metrics that tables show with an interval.

    Intervals for all metrics would take twice the time, and they are most of an evaluation's cost.
    """
    names = METRICS.names(Shown.DETAIL, needs="rows")
    return [name for name in names if METRICS[name].has_interval]


def measure(
    predictions: Predictions, test: LabelledLogits, *, bins: int, seed: int
) -> tuple[dict[str, float], dict[str, tuple[float, float]], tuple[float, float]]:
    """Metrics, intervals and noise floor of a calibrator's output on test rows."""
    measured = scores(predictions, bins=bins)
    wanted = [name for name in interval_metrics() if name in measured]
    resampled = resampled_metrics(
        predictions, metrics=wanted, bins=bins, seed=seed, groups=test.groups
    )
    floor = floor_of(predictions, test, bins=bins, seed=seed)
    return measured, intervals_of(resampled, test.groups), floor


def floor_of(
    predictions: Predictions, test: LabelledLogits, *, bins: int, seed: int
) -> tuple[float, float]:
    """Mean and 95 % quantile of the ECE that the output would have if it were calibrated."""
    floor = metrics.noise_floor(
        predictions.confidence,
        bins=bins,
        seed=seed,
        correct=predictions.correct,
        groups=test.groups,
        weights=test.weights,
    )
    return floor.mean, floor.q95


def evaluate_oracle(
    test: LabelledLogits, *, large: LabelledLogits | None = None, bins: int = 15, seed: int = 0
) -> CalibratorEvaluation:
    """Evaluate the Bayes-optimal classifier, which no method can beat on average, on this draw.

    Raises ``ValueError`` if the posterior is unknown.
    """
    exact = _as_oracle(test)
    output = exact.logits.exp()
    measured, intervals, floor = measure(predictions_of(output, exact), exact, bins=bins, seed=seed)
    found = {}
    if large is not None:
        draw = _as_oracle(large)
        found = measure_large(draw.logits.exp(), draw, bins=bins)
    return CalibratorEvaluation(measured, intervals, floor, validation={}, large=found)


def _as_oracle(test: LabelledLogits) -> LabelledLogits:
    if test.posterior is None:
        raise ValueError("posterior: unknown for this dataset; only synthetic ones have it")
    return replace(test, logits=test.posterior.clamp_min(1e-300).log())


def evaluate(
    calibrators: Sequence[str],
    validation: LabelledLogits,
    test: LabelledLogits,
    *,
    bins: int = 15,
) -> dict[str, CalibratorEvaluation]:
    """Fit every calibrator in ``calibrators`` on ``validation`` and evaluate it on ``test``."""
    return {name: evaluate_calibrator(name, validation, test, bins=bins) for name in calibrators}
