"""The leaderboard's 95 % intervals."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from calibration.metrics import METRICS

GROUPS = ["dataset", "row", "calibrator"]
WIDTH = 2 * float(special.ndtri(0.975))
"""Half-width of a 95 % interval, in standard errors."""


def with_intervals(
    table: pd.DataFrame, tidy: pd.DataFrame, crossed: Collection[str] = ()
) -> pd.DataFrame:
    """The leaderboard with METRIC_ci_low and METRIC_ci_high for every test metric.

    Over several seeds it is the t interval of their mean, clipped to the metric's bounds: for new
    seeds, and for new data if every seed draws its own. For the datasets in ``crossed``, whose
    seeds share their test rows, the variance over rows is added: the mean of the seeds' variances
    over resamples, from their bootstrap intervals. That is an upper limit, reached if all
    networks err on the same rows. A metric without such intervals then has none. A single seed
    has the bootstrap interval over its test rows alone, if there is one; else NaN.
    """
    measured = {name for name, metric in METRICS.items() if metric.unit != "count"}
    names = [name for name in tidy.columns if name.removeprefix("large_") in measured]
    counts = tidy.groupby(GROUPS)[names].count().loc[pd.MultiIndex.from_frame(table[GROUPS])]
    shared = table["dataset"].isin(list(crossed)).to_numpy()
    columns: dict[str, NDArray[np.float64]] = {}
    for name in names:
        low, high = METRICS[name.removeprefix("large_")].bounds
        count = counts[name].to_numpy()
        enough = np.where(count > 1, count, np.nan)
        of_seeds = np.square(_column(table, f"{name}_sd")) / enough
        ends = (_column(table, f"{name}_{end}") for end in ("low", "high"))
        with np.errstate(invalid="ignore"):  # both ends of an infinite NLL are infinite
            of_rows = np.where(shared, np.square(np.subtract(*ends) / WIDTH), 0.0)
        # Satterthwaite's degrees of freedom, for many rows.
        share = np.divide(of_seeds + of_rows, of_seeds, where=of_seeds > 0, out=np.ones(len(table)))
        quantile = special.stdtrit((enough - 1) * np.square(share), 0.975)
        half = quantile * np.sqrt(of_seeds + of_rows)
        for end, sign in (("low", -1), ("high", 1)):
            bound = (_column(table, name) + sign * half).clip(low, high)
            alone = _column(table, f"{name}_{end}")
            columns[f"{name}_ci_{end}"] = np.where(count == 1, alone, bound)
    return pd.concat([table, pd.DataFrame(columns, index=table.index)], axis=1)


def _column(table: pd.DataFrame, name: str) -> NDArray[np.float64]:
    if name not in table:
        return np.full(len(table), np.nan)
    return table[name].to_numpy(dtype=np.float64)
