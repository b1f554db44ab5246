"""Trade-offs of error, calibration and cost: fronts, and hypervolumes against the baseline."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from sweeps.analysis.comparisons import Baseline
from sweeps.analysis.statistics import hypervolume, pareto_front
from sweeps.spec import ORACLE

_COLUMNS = [
    *("dataset", "row", "calibrator", "error", "ece", "train_seconds"),
    *("on_front", "on_cost_front"),
]
REFERENCE = (2.0, 2.0)


def fronts(table: pd.DataFrame) -> pd.DataFrame:
    """Every leaderboard row but the oracle's, and whether any other of its dataset beats it.

    ``on_front`` looks at error and ECE, ``on_cost_front`` at the training time too; all are
    means over seeds on test data, which describe the rows but choose nothing.
    """
    rows = table.loc[table["row"] != ORACLE, _COLUMNS[:-2]].reset_index(drop=True)
    rows["on_front"] = rows["on_cost_front"] = False
    for _, group in rows.groupby("dataset", sort=False):
        rows.loc[group.index, "on_front"] = pareto_front(group[["error", "ece"]])
        everything = group[["ece", "error", "train_seconds"]]
        rows.loc[group.index, "on_cost_front"] = pareto_front(everything)
    return rows


def hypervolumes(
    rows: pd.DataFrame, baseline: Baseline, calibrators: Mapping[tuple[str, str], str]
) -> dict[str, float]:
    """By dataset, the area of error × ECE that the front dominates, in units of the baseline.

    Both axes are divided by the baseline's own value, and the reference point is twice the
    baseline: the baseline alone has 1, no error and no ECE give 4, and 1.5 may mean half
    its ECE at the same error. So the number is comparable between datasets of any difficulty, and
    between sweeps with the same baseline. The baseline has the calibrator chosen for it in
    ``calibrators``, unless it names one: the front has all of them too. NaN if the baseline has
    no row, or zero error or ECE.
    """
    found: dict[str, float] = {}
    for dataset, group in rows.groupby("dataset", sort=False):
        points = group[["error", "ece"]].to_numpy(dtype=np.float64)
        chosen = {row: name for (where, row), name in calibrators.items() if where == dataset}
        method, calibrator = baseline.chosen(chosen)
        own = (group["row"] == method) & (group["calibrator"] == calibrator)
        unit = points[own.to_numpy()]
        usable = len(unit) == 1 and bool((unit > 0).all())
        found[str(dataset)] = hypervolume(points / unit[0], REFERENCE) if usable else np.nan
    return found
