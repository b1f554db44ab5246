"""Made-up nights: frames of results as a suite leaves them, and chance as seeds have it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]

DATASETS, METHODS, CALIBRATORS = (
    ("blobs", "digits"),
    ("standard", "focal", "bo4sc"),
    ("identity", "temp"),
)
METRICS = ("ece", "nll", "error")
MINIMUM = np.array([0.01, 0.02, 0.01])
TYPICAL = np.array([0.03, 0.3, 0.12])
DEVIATION = np.array([0.0065, 0.015, 0.006])
"""Of a metric over fresh seeds, as small networks have it on a thousand test rows."""
TEST_ROWS = 360
SHAPE = (len(DATASETS), len(METHODS), len(CALIBRATORS), len(METRICS))
CELLS = list(itertools.product(DATASETS, METHODS, CALIBRATORS))


def scales(rng: np.random.Generator, shape: tuple[int, ...] = SHAPE) -> Array:
    """How much each cell varies: some trainings are ten times as chancy as others."""
    trainings = np.exp(rng.normal(0, 0.8, (*shape[:2], 1, 1)))
    return np.asarray(trainings * np.exp(rng.normal(0, 0.25, (*shape[:3], 1))) * DEVIATION)


def chance(rng: np.random.Generator, spread: Array, seeds: int, tails: float = 5.0) -> Array:
    """What luck does to every value of a night: calibrators and metrics of a training share half.

    Student's t with ``tails`` degrees of freedom, of the deviations ``spread``; the last
    metric, the error, is a count of ``TEST_ROWS`` rows.
    """
    shared = rng.standard_t(tails, (*spread.shape[:2], 1, 1, seeds))
    own = rng.standard_t(tails, (*spread.shape, seeds))
    drawn = (shared + own) / np.sqrt(2 * tails / (tails - 2)) * spread[..., None]
    drawn[..., -1, :] = np.round(drawn[..., -1, :] * TEST_ROWS) / TEST_ROWS
    return np.asarray(drawn)


def frame(
    changes: Array | float = 0.0,
    *,
    seeds: int = 5,
    pace: Any = 1.0,
    speed: float = 1.0,
    busy: float = 1.0,
) -> pd.DataFrame:
    """A night: the same values every time, plus ``changes`` of ``SHAPE`` × seeds.

    Training takes 10 s times ``pace``, which may differ by dataset, method and seed, and the
    reference work 10 ms times ``speed``.
    """
    luck = np.random.default_rng(0)
    values = TYPICAL[:, None] + chance(luck, scales(luck), seeds) / 3 + changes
    times = np.broadcast_to(10.0 * np.asarray(pace), (*SHAPE[:2], seeds))
    names = {"dataset": DATASETS, "row": METHODS, "calibrator": CALIBRATORS}
    names |= {"seed": range(100, 100 + seeds)}
    rows = pd.MultiIndex.from_product(names.values(), names=names).to_frame(index=False)
    rows.insert(0, "sweep", "small")
    for place, metric in enumerate(METRICS):
        rows[metric] = values[..., place, :].ravel()
    rows["work_seconds"] = np.repeat(times[:, :, None], len(CALIBRATORS), axis=2).ravel()
    return rows.assign(reference=0.01 * speed, busy=busy)


def only(dataset: str, method: str, calibrator: str, metric: str, change: Any) -> Array:
    """The changes of a night in which one value of one cell changed, by seed or on all alike."""
    changes = np.zeros((*SHAPE, np.size(change) if np.ndim(change) else 1))
    place = DATASETS.index(dataset), METHODS.index(method), CALIBRATORS.index(calibrator)
    changes[(*place, METRICS.index(metric))] = change
    return changes


def line(lines: pd.DataFrame, dataset: str, method: str, calibrator: str, metric: str) -> Any:
    """The line of a cell and metric."""
    here = (lines["dataset"] == dataset) & (lines["row"] == method)
    here &= (lines["calibrator"] == calibrator) & (lines["metric"] == metric)
    (row,) = lines[here].itertuples()
    return row


def paces(rng: np.random.Generator, seeds: int) -> Array:
    """What multiplies costs by chance, as in ``timings.csv``: by night, by training, by trial."""
    trials = rng.normal(0, 0.08, (*SHAPE[:2], seeds))
    trainings = rng.normal(0, 0.03, (*SHAPE[:2], 1))
    return np.asarray(np.exp(rng.normal(0, 0.02) + trainings + trials))


def at_most(rate: float, simulated: int) -> int:
    """What a true rate of ``rate`` exceeds once in a thousand times."""
    return int(stats.binom.ppf(0.999, simulated, rate))
