"""Which candidates validation data can distinguish: mean NLLs, paired over seeds.

A candidate is *tied* with the best if its mean validation NLL over the confirm seeds is no
further from the best's than one standard error of their paired difference, and never further
than the region within which two NLLs are the same in practice: noise must not excuse a
difference that matters. Seeds that split the same rows differently have overlapping training
and validation parts, so the standard error is that of Nadeau and Bengio (Machine Learning 52,
2003), s · sqrt(1/n + n_validation / n_train). If the data comes with its own split (``fold``,
``time``), every seed has the same rows, there is no overlap to correct for, and the standard error
is about new seeds only. A single seed has no standard error: only equal candidates are tied.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.metrics import METRICS
from sweeps.analysis.verdicts import region_of
from sweeps.spec import LoadedSpec

_ROUNDING = 1e-12
_RATIOS: dict[tuple[str, str], float] = {}


class Standing(NamedTuple):
    """How far a candidate's mean validation NLL is above another's, and whether that is noise.

    ``error`` is one standard error of the paired difference; NaN with a single seed.
    """

    difference: float
    error: float
    tied: bool


def nll_region(own: Mapping[str, float] | None = None) -> float:
    """How far apart two NLLs may be and still be the same in practice; ``own`` overrides it."""
    return region_of(METRICS["nll"], own or {})


def standing(
    ours: NDArray[np.float64], best: NDArray[np.float64], ratio: float, region: float
) -> Standing:
    """A candidate against the best: one NLL per seed each, in the same order.

    ``ratio`` is n_validation / n_train, 0 if every seed draws fresh data. Infinite means
    are equal to each other and tied with nothing else.
    """
    mean, other = float(ours.mean()), float(best.mean())
    if math.isinf(mean) or math.isinf(other):
        alike = mean == other
        return Standing(0.0 if alike else mean - other, math.nan, alike)
    difference = ours - best
    gap, seeds = float(difference.mean()), len(difference)
    error = math.nan
    if seeds > 1:
        error = float(difference.std(ddof=1)) * math.sqrt(1 / seeds + ratio)
    equal = gap <= _ROUNDING * max(abs(mean), abs(other))
    return Standing(gap, error, equal or (seeds > 1 and gap <= min(error, region)))


def validation_ratio(loaded: LoadedSpec, dataset: str) -> float:
    """n_validation / n_train of a dataset that every seed splits differently.

    0 for fresh draws, and for a split that is the same for every seed.
    """
    data, spec = loaded.datasets[dataset], loaded.spec
    if data.independent_draws or data.fixed_split:
        return 0.0
    known = (data.fingerprint, spec.protocol.model_dump_json())
    if known not in _RATIOS:
        parts = data.split(spec.protocol, spec.seed, held_out=False)
        judging = parts.apart or parts.validation
        _RATIOS[known] = len(judging.labels) / len(parts.train.labels)
    return _RATIOS[known]
