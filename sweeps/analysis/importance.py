"""Which knobs mattered in every search."""

from __future__ import annotations

import pandas as pd

from sweeps.engine.plan import Plan
from sweeps.store import Store

_COLUMNS = ["dataset", "row", "knob", "importance", "trials"]


def importance(plan: Plan, store: Store) -> pd.DataFrame:
    """The share of each searched knob in what made trials differ, by dataset and method.

    ``trials`` is the number of finished trials it was estimated from: a handful ranks knobs
    roughly at best. Searches that have not ended, or had too few trials, have no rows; see
    ``Study.importance``.
    """
    lines = []
    for cell in plan.cells.values():
        if not cell.study.space.searched:
            continue
        found = store.importance(plan.spec.name, cell.study_id) or {"shares": {}}
        for knob, share in found["shares"].items():
            lines.append((cell.dataset, cell.row, knob, float(share), found["trials"]))
    return pd.DataFrame(lines, columns=_COLUMNS)
