"""All cheap scalar metrics at once, sharing the work, and the list of metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from calibration.metrics.checks import Data, check_count
from calibration.metrics.classwise import classwise_ace_of, classwise_ece_of
from calibration.metrics.kernel import mmce_of
from calibration.metrics.predictions import Predictions
from calibration.metrics.proper_scores import brier_of, error_of, nll_losses
from calibration.metrics.selective import aurc_of
from calibration.metrics.smooth import smooth_ece_of
from calibration.metrics.top_label import (
    ace_of,
    average_ce_of,
    ece_of,
    ks_of,
    kuiper_of,
    l2_debiased_of,
    mce_of,
)


class Metric(NamedTuple):
    """A scalar metric of the panel: how it is computed and what it says."""

    compute: Callable[[Predictions, int], Tensor]
    rows_only: bool
    description: str


METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        "error": Metric(lambda p, _: error_of(p), False, "share of wrong top labels"),
        "nll": Metric(
            lambda p, _: nll_losses(p).mean(-1), True, "negative log-likelihood (proper score)"
        ),
        "brier": Metric(
            lambda p, _: brier_of(p),
            True,
            "Brier score summed over classes, 0 to 2 (proper score)",
        ),
        "ece": Metric(ece_of, False, "expected calibration error, equal-width bins"),
        "mce": Metric(
            lambda p, bins: mce_of(p, bins).value,
            False,
            "largest calibration gap of an equal-width bin",
        ),
        "mce_count": Metric(
            lambda p, bins: mce_of(p, bins).count, False, "samples in the bin that decides mce"
        ),
        "ace": Metric(ace_of, False, "adaptive calibration error, equal-mass bins"),
        "average_ce": Metric(
            average_ce_of, False, "unweighted mean gap of the non-empty equal-width bins"
        ),
        "classwise_ece": Metric(
            classwise_ece_of, True, "binned error of each class's probability, mean over classes"
        ),
        "classwise_ace": Metric(
            classwise_ace_of, True, "equal-mass binned error per class, mean over classes"
        ),
        "ks": Metric(
            lambda p, _: ks_of(p), False, "Kolmogorov-Smirnov error: largest cumulative gap"
        ),
        "kuiper": Metric(
            lambda p, _: kuiper_of(p), False, "Kuiper error: spread of the cumulative gap"
        ),
        "smooth_ece": Metric(
            lambda p, _: smooth_ece_of(p), False, "kernel-smoothed ECE at its own bandwidth"
        ),
        "mmce": Metric(lambda p, _: mmce_of(p), False, "maximum mean calibration error (kernel)"),
        "l2_debiased": Metric(
            l2_debiased_of, False, "squared binned error minus its sampling variance"
        ),
        "aurc": Metric(lambda p, _: aurc_of(p), False, "area under the risk-coverage curve"),
    }
)


@torch.no_grad()
def panel(
    probabilities: Data, labels: Data, *, bins: int = 15, metrics: Sequence[str] | None = None
) -> dict[str, float]:
    """Every metric of METRICS (or the named ones) of one set of predictions, as plain floats.

    Takes probabilities (N, K) with labels (N), or confidence (N) with correct (N), for which
    metrics that need whole rows are left out. Raises ``ValueError`` on malformed input, unknown
    names, and names that need rows where there are none.
    """
    predictions = Predictions.of(probabilities, labels)
    number = check_count(bins, "bins")
    if predictions.batch:
        raise ValueError(
            f"panel takes one set of predictions at a time, found a batch of shape "
            f"{tuple(predictions.batch)}"
        )
    names = panel_names(predictions.has_rows) if metrics is None else metrics
    for name in names:
        if name not in METRICS:
            raise ValueError(f"metrics: unknown {name!r}; known: {', '.join(METRICS)}")
        if METRICS[name].rows_only and not predictions.has_rows:
            raise ValueError(f"metrics: {name!r} needs probabilities (N, K), found confidences")
    return {name: float(METRICS[name].compute(predictions, number)) for name in names}


def panel_names(has_rows: bool) -> tuple[str, ...]:
    """Names of the metrics that make sense with, or without, whole rows of probabilities."""
    return tuple(name for name, metric in METRICS.items() if has_rows or not metric.rows_only)
