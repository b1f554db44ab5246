"""A sweep's results, analysed from its records alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from calibration.methods import METHODS
from calibration.metrics import METRICS, Shown
from sweeps.analysis import costs as costing
from sweeps.analysis import tradeoffs
from sweeps.analysis.comparisons import Baseline, compare, find_baseline
from sweeps.analysis.importance import importance
from sweeps.analysis.noise import validation_ratio
from sweeps.analysis.overlap import correlation_ratio
from sweeps.analysis.recommendation import (
    PLAIN,
    REFERENCES,
    Recommendation,
    SweepFacts,
    recommend,
)
from sweeps.analysis.records import SweepRecords
from sweeps.analysis.results import leaderboard, results
from sweeps.analysis.seed_intervals import GROUPS, with_intervals
from sweeps.analysis.selection import CHOSEN_BY, CHOSEN_BY_ERROR, Selection, select
from sweeps.analysis.statistics import Ranks, ranks


@dataclass(frozen=True)
class Analysis:
    """What can be said of a sweep, from its ``records``.

    ``results`` has a row per (dataset, method, calibrator, seed), ``leaderboard`` their
    means over seeds with 95 % intervals (METRIC_ci_low, METRIC_ci_high). ``selection`` is
    what validation data chose, ``recommendation`` what to use, in sentences and as JSON,
    ``comparisons`` the paired tests against ``baseline``, ``ranks``
    those of the chosen over datasets by metric, where there are enough of both. ``fronts``,
    ``hypervolumes``, ``importance`` and ``costs`` are described where they are made. A sweep
    with nothing confirmed has frames without rows.
    """

    records: SweepRecords
    results: pd.DataFrame
    leaderboard: pd.DataFrame
    selection: Selection
    recommendation: Recommendation
    comparisons: pd.DataFrame
    baseline: Baseline
    ranks: dict[str, Ranks]
    fronts: pd.DataFrame
    hypervolumes: dict[str, float]
    importance: pd.DataFrame
    costs: pd.DataFrame

    @property
    def outdated(self) -> int:
        """How many evaluations another version of a metric or a calibrator has made."""
        return int(self.results["outdated"].sum()) if "outdated" in self.results else 0


def analyse(sweep: SweepRecords, baseline: str | None = None) -> Analysis:
    """Analyse what a sweep has recorded by now; nothing is read, trained or evaluated.

    ``baseline`` is a row, or exactly a row with a calibrator as in ``focal + temperature``; see
    ``find_baseline``, whose ``UserError`` it may raise.
    """
    reference = find_baseline(sweep.spec, baseline)
    tidy = results(sweep)
    names = [] if tidy.empty else list(tidy["dataset"].unique())
    complexities = {
        name: METHODS[row.method].complexity for name, row in sweep.spec.methods.items()
    }
    overlaps = {name: validation_ratio(sweep.loaded, name) for name in names}
    selection = select(tidy, complexities, overlaps)
    if tidy.empty:
        tidy = pd.DataFrame(columns=[*GROUPS, "seed", *METRICS, CHOSEN_BY, "train_seconds"])
        table = tidy.drop(columns="seed").assign(seeds=0, chosen=False, winner=False, tied=False)
        table[[CHOSEN_BY_ERROR, *(f"{name}_sd" for name in METRICS)]] = float("nan")
    else:
        table = leaderboard(tidy, selection)
    ratios = {name: correlation_ratio(sweep.loaded, name) for name in names}
    table = with_intervals(table, tidy, ratios)
    compared = compare(tidy, selection.calibrators, reference, ratios)
    fronts = tradeoffs.fronts(table)
    return Analysis(
        records=sweep,
        results=tidy,
        leaderboard=table,
        selection=selection,
        recommendation=_recommendation(sweep, tidy, selection, table, ratios),
        comparisons=compared,
        baseline=reference,
        ranks=_ranks(table[table["chosen"]]),
        fronts=fronts,
        hypervolumes=tradeoffs.hypervolumes(fronts, reference, selection.calibrators),
        importance=importance(sweep),
        costs=costing.costs(sweep, compared, reference),
    )


def _recommendation(
    sweep: SweepRecords,
    tidy: pd.DataFrame,
    selection: Selection,
    table: pd.DataFrame,
    ratios: Mapping[str, float],
) -> Recommendation:
    """What to use, and what that gains over the plain network, as it is and with temperature."""
    spec = sweep.spec
    plain_rows = [name for name, row in spec.methods.items() if row.method == PLAIN]
    plain = find_baseline(spec) if plain_rows else None
    won = {(dataset, row): calibrator for dataset, (row, calibrator) in selection.winners.items()}
    references = [] if plain is None else [plain._replace(calibrator=c) for c in REFERENCES]
    compared = [
        {str(name): value for name, value in line.items()}
        for reference in references
        for line in compare(tidy, won, reference, ratios).to_dict("records")
    ]
    cells = sweep.cells.items()
    facts = SweepFacts(
        list(sweep.loaded.datasets),
        None if plain is None else plain.row,
        len(plain_rows),
        settings={p: t.searched for p, cell in cells for t in cell.search if t.best},
        searched={row: list(spec.space(row).searched) for row in spec.methods},
        remaining=0 if sweep.finished else sweep.total - sweep.done,
    )
    return recommend(facts, selection, table, compared)


def _ranks(best: pd.DataFrame) -> dict[str, Ranks]:
    """By metric, over the datasets on which the methods have all finished."""
    found: dict[str, Ranks] = {}
    for metric in METRICS.names(Shown.LEADERBOARD):
        if metric not in best:
            continue
        scores = best.pivot(index="dataset", columns="row", values=metric).dropna(axis=1)
        ranked = ranks(-scores if METRICS[metric].direction == "maximize" else scores)
        if ranked is not None:
            found[metric] = ranked
    return found
