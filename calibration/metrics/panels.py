"""All cheap scalar metrics at once, with shared intermediate results."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from calibration.metrics.catalogue import METRICS
from calibration.metrics.checks import Data, check_count
from calibration.metrics.predictions import Predictions


@torch.no_grad()
def panel(
    probabilities: Data,
    labels: Data,
    *,
    bins: int = 15,
    metrics: Sequence[str] | None = None,
    posterior: Tensor | None = None,
    weights: Tensor | None = None,
) -> dict[str, float]:
    """The named metrics of one set of predictions, by default all that are not ``on_demand``.

    Takes probabilities (N, K) with labels (N), or confidence (N) with correct (N), for which
    metrics that need whole rows are omitted, as are those that need the true ``posterior``
    (N, K) if it is not given. ``weights`` (N) say how much each row counts in the metrics that
    are ``weighted``. Raises ``ValueError`` on malformed input, unknown names, and names of
    metrics that need more than is given.
    """
    predictions = Predictions.of(probabilities, labels, posterior, weights)
    return panel_of(predictions, bins=bins, metrics=metrics)


@torch.no_grad()
def panel_of(
    predictions: Predictions, *, bins: int = 15, metrics: Sequence[str] | None = None
) -> dict[str, float]:
    """``panel`` of checked predictions."""
    number = check_count(bins, "bins")
    check_unbatched(predictions, "panel")
    names = METRICS.names(needs=predictions.known) if metrics is None else metrics
    check_names(names, predictions)
    return {name: float(METRICS[name].measure(predictions, number)) for name in names}


@torch.no_grad()
def panel_of_each(
    probabilities: Data, labels: Data, *, bins: int = 15, metrics: Sequence[str]
) -> list[dict[str, float]]:
    """``panel`` of each of M sets of predictions: probabilities (M, N, K) with labels (M, N)."""
    predictions = Predictions.of_rows(probabilities, labels)
    number = check_count(bins, "bins")
    check_names(metrics, predictions)
    columns = [METRICS[name].measure(predictions, number) for name in metrics]
    for name, column in zip(metrics, columns, strict=True):
        if column.shape != predictions.batch:
            raise BatchError(
                f"metrics: {name!r} takes one set of predictions at a time: of "
                f"{predictions.batch[0]} it made a result of shape {tuple(column.shape)}"
            )
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [dict(zip(metrics, row, strict=True)) for row in rows]


class BatchError(ValueError):
    """Raised by functions of one set of predictions that are given several."""


def check_unbatched(predictions: Predictions, function: str) -> None:
    """Raise ``BatchError`` for several sets of predictions in a batch."""
    if predictions.batch:
        raise BatchError(
            f"{function} takes one set of predictions at a time, "
            f"found a batch of shape {tuple(predictions.batch)}"
        )


def check_names(names: Sequence[str], predictions: Predictions) -> None:
    """Raise ``ValueError`` for unknown metrics and those that need more than is known."""
    for name in names:
        if name not in METRICS:
            raise ValueError(f"metrics: unknown {name!r}; known: {', '.join(METRICS)}")
        needs = METRICS[name].needs
        if needs != "confidence" and not predictions.has_rows:
            raise ValueError(f"metrics: {name!r} needs probabilities (N, K), found confidences")
        if needs == "posterior" and predictions.known != "posterior":
            raise ValueError(f"metrics: {name!r} needs the true posterior (N, K), which is missing")
