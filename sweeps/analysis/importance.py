"""Which knobs mattered in every search."""

from __future__ import annotations

import pandas as pd

from sweeps.plan import Plan

COLUMNS = ["dataset", "method", "knob", "importance", "trials"]


def importance(plan: Plan) -> pd.DataFrame:
    """The share of each searched knob in what made trials differ, by dataset and method.

    ``trials`` is the number of finished trials it was estimated from: a handful ranks knobs
    roughly at best. Searches with too few trials have no rows; see ``Study.importance``.
    """
    lines = []
    for cell in plan.cells.values():
        study = cell.study
        finished = sum(study.values(number) is not None for number in range(study.asked))
        for knob, share in study.importance().items():
            lines.append((cell.dataset, cell.row, knob, share, finished))
    return pd.DataFrame(lines, columns=COLUMNS)
