"""Which hyperparameters mattered in every search."""

from __future__ import annotations

import pandas as pd

from sweeps.analysis.records import SweepRecords

_COLUMNS = ["dataset", "row", "hyperparameter", "importance", "trials"]


def importance(sweep: SweepRecords) -> pd.DataFrame:
    """The share of each hyperparameter in the variation between trials, by dataset and method.

    ``trials`` is the number of finished trials it was estimated from: a handful ranks
    hyperparameters roughly at best. Searches that have not ended, or had too few trials, have no
    rows; see ``Study.importance``.
    """
    lines = []
    for cell in sweep.cells.values():
        found = cell.importance or {"shares": {}}
        for hyperparameter, share in found["shares"].items():
            lines.append((cell.dataset, cell.row, hyperparameter, float(share), found["trials"]))
    return pd.DataFrame(lines, columns=_COLUMNS)
