"""The recorded scores of single test rows, for verdicts about new data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from calibration.metrics import Metric
from calibration.metrics.bootstrap import resample_counts
from calibration.metrics.row_scores import COUNTED, ROW_MEANS, RowScores
from sweeps.analysis.statistics import Estimate, by_group, crossed_binned, crossed_means

FEWEST_SEEDS = 3
"""With two, the spread over seeds has one degree of freedom: if they agree by chance, rows alone
would decide, and err several times as often as allowed."""
RESAMPLES = 200
"""Their variance is known to a tenth: √(2/200)."""

About = Literal["new_data", "test_set"]
"""The population of a verdict: new test rows and new seeds, for networks trained from this pool of
data (the default), or new seeds on these very test rows."""
Name = tuple[str, str]
"""A row and a calibrator."""


class RowEvidence:
    """The scores of one dataset's test rows, which are the same for every seed.

    ``read`` returns those of a row, calibrator and seed, or None if they are not recorded.
    """

    def __init__(self, read: Callable[[Name, int], RowScores | None], bins: int) -> None:
        self._read = read
        self._bins = bins
        self._resampled: dict[tuple[str, Name, int], NDArray[np.float64]] = {}

    def estimate(
        self,
        metric: Metric,
        ours: Name,
        theirs: Name,
        differences: Mapping[int, float],
        other: RowEvidence | None = None,
    ) -> Estimate | None:
        """The mean of the differences by seed, for new rows and seeds; None: not recorded.

        ``other`` holds theirs, if they belong to another sweep. With fewer than three seeds
        nothing is tested. Metrics that are neither a mean over rows nor computed from confidences
        and correctness cannot be resampled from the recorded scores. Rows in groups vary with
        them: the estimate is then about new groups.
        """
        values = np.array(list(differences.values()), dtype=np.float64)
        mean = float(values.mean()) if len(values) else math.nan
        if len(values) < FEWEST_SEEDS:
            return Estimate(mean, math.nan, math.nan, len(values))
        against = other or self
        first = [self._read(ours, seed) for seed in differences]
        second = [against._read(theirs, seed) for seed in differences]
        both = [scores for scores in (*first, *second) if scores is not None]
        if len(both) < 2 * len(values) or len({scores.labels for scores in both}) != 1:
            return None
        groups = both[0].groups
        weights = both[0].weights
        if any(
            not (_same(scores.groups, groups) and _same(scores.weights, weights)) for scores in both
        ):
            return None
        if metric.name in ROW_MEANS:
            found = _cells(metric.name, both[: len(values)], both[len(values) :], groups)
            return None if found is None else found._replace(mean=mean)
        if metric.needs != "confidence" or not metric.has_interval:
            return None
        resampled = np.mean(
            [
                self._values(metric, ours, seed) - against._values(metric, theirs, seed)
                for seed in differences
            ],
            axis=0,
        )
        variance = float(resampled.var(ddof=1))
        if groups is None:
            return crossed_binned(values, variance, len(both[0].correct))
        number = len(groups.unique())
        if number < 2:
            return Estimate(mean, math.nan, math.nan, len(values), number, grouped=True)
        # Resamples of G groups vary by (G − 1)/G of what new groups do.
        found = crossed_binned(values, variance * number / (number - 1), number)
        return found._replace(grouped=True)

    def _values(self, metric: Metric, name: Name, seed: int) -> NDArray[np.float64]:
        """The metric on resamples of the rows, the same for all names and seeds."""
        known = self._resampled.get((metric.name, name, seed))
        if known is None:
            scores = self._read(name, seed)
            assert scores is not None, "read before"
            counts = resample_counts(len(scores.correct), RESAMPLES, 0, scores.groups)
            with torch.no_grad():
                values, _ = metric.resampled(scores.pairs, self._bins, counts)
            known = self._resampled[metric.name, name, seed] = values.numpy()
        return known


def _same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return torch.equal(one, other)


def _cells(
    metric: str,
    ours: Sequence[RowScores],
    theirs: Sequence[RowScores],
    groups: torch.Tensor | None,
) -> Estimate | None:
    rows = [[scores.of(metric) for scores in side] for side in (ours, theirs)]
    if any(values is None for side in rows for values in side):
        return None
    first, second = (
        np.stack([values.numpy() for values in side if values is not None]) for side in rows
    )
    differences, quantum = first - second, 1.0 if metric in COUNTED else 0.0
    if groups is None:
        return crossed_means(differences, quantum=quantum)
    clustered = by_group(differences, groups.numpy())
    # One row of one group changes the group's value by that much.
    step = quantum * clustered.shape[1] / differences.shape[1]
    return crossed_means(clustered, quantum=step)._replace(grouped=True)
