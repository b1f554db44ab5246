"""The leaderboard's 95 % intervals."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration.metrics import METRICS
from sweeps.analysis.statistics import half_width

GROUPS = ["dataset", "row", "calibrator"]


def with_intervals(
    table: pd.DataFrame, tidy: pd.DataFrame, ratios: Mapping[str, float]
) -> pd.DataFrame:
    """The leaderboard with METRIC_ci_low and METRIC_ci_high for every test metric.

    Over several seeds it is the t interval of their mean, with the dataset's correlation
    ratio in ``ratios``, cut to what the metric can be. A single seed has the bootstrap
    interval over its test rows instead, where one was made; else NaN.
    """
    measured = {name for name, metric in METRICS.items() if metric.direction != "none"}
    names = [name for name in tidy.columns if name.removeprefix("large_") in measured]
    counts = tidy.groupby(GROUPS)[names].count().loc[pd.MultiIndex.from_frame(table[GROUPS])]
    ratio = table["dataset"].map(dict(ratios)).to_numpy(dtype=np.float64)
    columns: dict[str, NDArray[np.float64]] = {}
    for name in names:
        low, high = METRICS[name.removeprefix("large_")].bounds
        count = counts[name].to_numpy()
        half = half_width(_column(table, f"{name}_sd"), count, correlation_ratio=ratio)
        for end, sign in (("low", -1), ("high", 1)):
            bound = (_column(table, name) + sign * half).clip(low, high)
            alone = _column(table, f"{name}_{end}")
            columns[f"{name}_ci_{end}"] = np.where(count == 1, alone, bound)
    return pd.concat([table, pd.DataFrame(columns, index=table.index)], axis=1)


def _column(table: pd.DataFrame, name: str) -> NDArray[np.float64]:
    if name not in table:
        return np.full(len(table), np.nan)
    return table[name].to_numpy(dtype=np.float64)
