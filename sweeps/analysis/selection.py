"""What validation data chose: each row's calibrator, each dataset's winner, a row's network.

Every choice among results is made here and nowhere else. The leaderboard's columns, the
report, the tags in MLflow and the exported model repeat what ``select`` decided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from sweeps.spec import ORACLE

CHOSEN_BY = "validation/nll"
NO_SCORE = "no validation NLL"
FEWER_SEEDS = "no result on some seeds"
_CELL = ["dataset", "row"]
CANDIDATE = [*_CELL, "calibrator"]


@dataclass(frozen=True)
class Selection:
    """What validation data chose.

    ``calibrators`` has the calibrator of each (dataset, row), ``winners`` the (row,
    calibrator) of each dataset. A (dataset, row, calibrator) that could not be chosen for
    its row is in ``ineligible``, a (dataset, row) that could not win in ``cannot_win``, each
    with the reason. The oracle is never a candidate.
    """

    calibrators: Mapping[tuple[str, str], str] = field(default_factory=dict)
    winners: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    ineligible: Mapping[tuple[str, str, str], str] = field(default_factory=dict)
    cannot_win: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def is_chosen(self, dataset: str, row: str, calibrator: str) -> bool:
        """Whether it is the calibrator of its row."""
        return self.calibrators.get((dataset, row)) == calibrator

    def is_winner(self, dataset: str, row: str, calibrator: str) -> bool:
        """Whether it is the dataset's winner."""
        return self.winners.get(dataset) == (row, calibrator)


def select(tidy: pd.DataFrame) -> Selection:
    """Choose by the lowest mean of the cross-fitted validation NLL over the confirm seeds.

    ``tidy`` has a line per dataset, row, calibrator and seed. What is measured on fewer seeds
    may just be lucky: a calibrator needs an NLL on every seed of its row to be chosen, a row
    every seed of the dataset's trained rows to win. Of equals the first in ``tidy`` is taken.
    """
    if tidy.empty:
        return Selection()
    trained = tidy[tidy["row"] != ORACLE]
    of_row = _seeds(trained, _CELL)
    of_dataset = _seeds(trained, _CELL[:1])
    calibrators: dict[tuple[str, str], str] = {}
    winners: dict[str, tuple[str, str]] = {}
    ineligible: dict[tuple[str, str, str], str] = {}
    for dataset, row, calibrator, scored in _best_first(trained):
        cell = dataset, row
        if scored < of_row[cell]:
            ineligible[*cell, calibrator] = FEWER_SEEDS if scored else NO_SCORE
            continue
        calibrators.setdefault(cell, calibrator)
        if scored == of_dataset[(dataset,)]:
            winners.setdefault(dataset, (row, calibrator))
    cannot_win = {}
    for (dataset, row), seeds in of_row.items():
        if seeds < of_dataset[(dataset,)]:
            cannot_win[dataset, row] = FEWER_SEEDS
        elif (dataset, row) not in calibrators:
            cannot_win[dataset, row] = NO_SCORE
    return Selection(calibrators, winners, ineligible, cannot_win)


def best_seed(tidy: pd.DataFrame, dataset: str, row: str, calibrator: str) -> int:
    """The seed of the row's network with the lowest validation NLL under this calibrator.

    That of the bare network decides between equals: a calibrator of the top label has no NLL
    at all, and one that gives probabilities of 0 may have an infinite one.
    """
    mine = tidy[(tidy["dataset"] == dataset) & (tidy["row"] == row)]
    bare = mine[mine["calibrator"] == "identity"].set_index("seed")[CHOSEN_BY]
    seeds = mine[mine["calibrator"] == calibrator]
    order = seeds.assign(
        own=seeds[CHOSEN_BY].fillna(float("inf")), bare=seeds["seed"].map(bare)
    ).sort_values(["own", "bare", "seed"], kind="stable")
    return int(order["seed"].iloc[0])


def _seeds(trained: pd.DataFrame, columns: list[str]) -> Counter[tuple[Any, ...]]:
    """On how many seeds there is anything at all."""
    different = trained[[*columns, "seed"]].drop_duplicates()
    return Counter(different[columns].itertuples(index=False, name=None))


def _best_first(trained: pd.DataFrame) -> Iterator[tuple[str, str, str, int]]:
    """Dataset, row, calibrator, and on how many seeds it has an NLL; the lowest mean first."""
    groups = trained.groupby(CANDIDATE, sort=False)[CHOSEN_BY].agg(["mean", "count"])
    ordered = groups.sort_values("mean", kind="stable").reset_index()
    yield from ordered[[*CANDIDATE, "count"]].itertuples(index=False, name=None)
