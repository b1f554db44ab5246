"""The choices by validation data: each row's calibrator, each dataset's winner, a row's network.

Every choice among confirmed results is made here (that of a search's best trial by its study). The
leaderboard's columns, the report, the tags in MLflow and the exported model repeat what ``select``
decided.

The rule: of all candidates that validation data cannot distinguish from the best (``noise``),
the simplest. Simpler means the less complex method and then the less complex calibrator
(``calibration.complexity``). The remaining candidates are equally simple, and the lowest mean NLL
decides; among equal ones, the first in the spec. Training times decide nothing: the same sweep has
the same winner on a busy machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration.calibrators import CALIBRATORS
from sweeps.analysis.noise import Standing, nll_region, standing
from sweeps.spec import ORACLE

CHOSEN_BY = "validation/nll"
CHOSEN_BY_ERROR = "validation/nll_se"
"""One standard error of the paired difference from the best candidate of the dataset."""
NO_SCORE = "no validation NLL"
FEWER_SEEDS = "no result on some seeds"
_CELL = ["dataset", "row"]
CANDIDATE = [*_CELL, "calibrator"]
Candidate = tuple[str, str]
"""A row and a calibrator."""


@dataclass(frozen=True)
class Selection:
    """The choices by validation data.

    ``calibrators`` has the calibrator of each (dataset, row), ``winners`` the (row,
    calibrator) of each dataset, and ``runners_up`` what would win without the winner's row,
    each with its standing against the winner. ``best`` has the candidate of lowest mean NLL, from
    which the winner cannot be distinguished, and ``standings`` the standing against it of each
    candidate that could win. A (dataset, row, calibrator) that could not be chosen for its row is
    in ``ineligible``, a (dataset, row) that could not win in ``cannot_win``, each with the reason.
    The oracle is never a candidate.
    """

    calibrators: Mapping[tuple[str, str], str] = field(default_factory=dict)
    winners: Mapping[str, Candidate] = field(default_factory=dict)
    runners_up: Mapping[str, tuple[Candidate, Standing]] = field(default_factory=dict)
    best: Mapping[str, Candidate] = field(default_factory=dict)
    standings: Mapping[tuple[str, str, str], Standing] = field(default_factory=dict)
    ineligible: Mapping[tuple[str, str, str], str] = field(default_factory=dict)
    cannot_win: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def is_chosen(self, dataset: str, row: str, calibrator: str) -> bool:
        """Whether it is the calibrator of its row."""
        return self.calibrators.get((dataset, row)) == calibrator

    def is_winner(self, dataset: str, row: str, calibrator: str) -> bool:
        """Whether it is the dataset's winner."""
        return self.winners.get(dataset) == (row, calibrator)


def select(
    tidy: pd.DataFrame,
    complexities: Mapping[str, int] | None = None,
    ratios: Mapping[str, float] | None = None,
    region: float | None = None,
) -> Selection:
    """Choose by the cross-fitted validation NLL on the confirm seeds, the simplest of the tied.

    ``tidy`` has a line per dataset, row, calibrator and seed. ``complexities`` are those of the
    rows' methods (all equal by default), ``ratios`` n_validation / n_train by dataset (0),
    ``region`` how far apart NLLs may be and still be the same in practice (by default the
    metric's). A result on fewer seeds may just be lucky: a calibrator needs an NLL on every seed
    of its row to be chosen, a row every seed of the dataset's trained rows to win. The winner
    is chosen among all candidates of a dataset, and its row has the calibrator it won with.
    """
    if tidy.empty:
        return Selection()
    trained = tidy[tidy["row"] != ORACLE]
    chosen = []
    for dataset, lines in trained.groupby("dataset", sort=False):
        ratio = (ratios or {}).get(str(dataset), 0.0)
        within = nll_region() if region is None else region
        candidates = _Field.of(lines, complexities or {}, ratio, within)
        chosen.append(_chosen(str(dataset), candidates))
    names = [each.name for each in fields(Selection)]
    return Selection(**{n: {k: v for c in chosen for k, v in getattr(c, n).items()} for n in names})


def best_seed(tidy: pd.DataFrame, dataset: str, row: str, calibrator: str) -> int:
    """The seed of the row's network with the lowest validation NLL under this calibrator.

    That of the uncalibrated network breaks ties: a calibrator of the top label has no NLL at
    all, and one that gives probabilities of 0 may have an infinite one.
    """
    mine = tidy[(tidy["dataset"] == dataset) & (tidy["row"] == row)]
    bare = mine[mine["calibrator"] == "identity"].set_index("seed")[CHOSEN_BY]
    seeds = mine[mine["calibrator"] == calibrator]
    order = seeds.assign(
        own=seeds[CHOSEN_BY].fillna(float("inf")), bare=seeds["seed"].map(bare)
    ).sort_values(["own", "bare", "seed"], kind="stable")
    return int(order["seed"].iloc[0])


@dataclass(frozen=True)
class _Field:
    """The candidates of one dataset: an NLL for every seed or NaN, in the order of the spec."""

    scores: Mapping[Candidate, NDArray[np.float64]]
    seeds_of_row: Mapping[str, int]
    complexities: Mapping[str, int]
    ratio: float
    region: float

    @classmethod
    def of(
        cls, lines: pd.DataFrame, complexities: Mapping[str, int], ratio: float, region: float
    ) -> _Field:
        names = CANDIDATE[1:]
        table = lines.pivot(index="seed", columns=names, values=CHOSEN_BY)
        order = lines[names].drop_duplicates().itertuples(index=False, name=None)
        scores = {name: table[name].to_numpy(dtype=np.float64) for name in order}
        different = lines[["row", "seed"]].drop_duplicates()
        return cls(scores, Counter(different["row"]), complexities, ratio, region)

    @property
    def seeds(self) -> int:
        """The number of seeds with any result."""
        return len(next(iter(self.scores.values())))

    def values(self, candidate: Candidate) -> NDArray[np.float64]:
        """Values by seed; candidates with the same seeds have them in the same order."""
        scores = self.scores[candidate]
        return scores[~np.isnan(scores)]

    def lowest(self, candidates: Sequence[Candidate]) -> Candidate:
        """The lowest mean; among equals the first."""
        return min(candidates, key=lambda candidate: float(self.values(candidate).mean()))

    def standings(self, candidates: Sequence[Candidate]) -> dict[Candidate, Standing]:
        """The standings of candidates with the same seeds against the best of them."""
        best = self.values(self.lowest(candidates))
        return {c: standing(self.values(c), best, self.ratio, self.region) for c in candidates}

    def beside(self, candidate: Candidate, other: Candidate) -> tuple[Candidate, Standing]:
        """A candidate, and its standing against another."""
        values = self.values(candidate), self.values(other)
        return candidate, standing(*values, self.ratio, self.region)

    def simplest(self, candidates: Sequence[Candidate]) -> Candidate:
        """The rule's choice among candidates with the same seeds."""
        tied = [c for c, found in self.standings(candidates).items() if found.tied]
        tied = _least(tied, lambda candidate: self.complexities.get(candidate[0], 0))
        if len(tied) > 1:  # a calibrator that no longer exists need not be known
            tied = _least(tied, lambda candidate: CALIBRATORS[candidate[1]].complexity)
        return self.lowest(tied)


def _least(candidates: list[Candidate], key: Callable[[Candidate], int]) -> list[Candidate]:
    least = min(map(key, candidates))
    return [candidate for candidate in candidates if key(candidate) == least]


def _chosen(dataset: str, there: _Field) -> Selection:
    """The choices on one dataset."""
    ineligible: dict[tuple[str, str, str], str] = {}
    of_row: dict[str, list[Candidate]] = {row: [] for row in there.seeds_of_row}
    for (row, calibrator), score in there.scores.items():
        scored = int(np.count_nonzero(~np.isnan(score)))
        if scored < there.seeds_of_row[row]:
            ineligible[dataset, row, calibrator] = FEWER_SEEDS if scored else NO_SCORE
        else:
            of_row[row].append((row, calibrator))
    cannot_win = {}
    for row, seeds in there.seeds_of_row.items():
        if seeds < there.seeds:
            cannot_win[dataset, row] = FEWER_SEEDS
        elif not of_row[row]:
            cannot_win[dataset, row] = NO_SCORE
    eligible = {row: candidates for row, candidates in of_row.items() if candidates}
    taken = {row: there.simplest(candidates) for row, candidates in eligible.items()}
    running = [
        c for row, all_ in eligible.items() if (dataset, row) not in cannot_win for c in all_
    ]
    if not running:
        return Selection(_calibrators(dataset, taken), {}, {}, {}, {}, ineligible, cannot_win)
    winner = there.simplest(running)
    taken[winner[0]] = winner
    others = [c for row, c in taken.items() if row != winner[0] and c in running]
    standings = there.standings(running)
    return Selection(
        _calibrators(dataset, taken),
        winners={dataset: winner},
        runners_up={dataset: there.beside(there.simplest(others), winner)} if others else {},
        best={dataset: there.lowest(running)},
        standings={(dataset, *candidate): found for candidate, found in standings.items()},
        ineligible=ineligible,
        cannot_win=cannot_win,
    )


def _calibrators(dataset: str, taken: Mapping[str, Candidate]) -> dict[tuple[str, str], str]:
    return {(dataset, row): calibrator for row, (_, calibrator) in taken.items()}
