"""The analysis of a sweep's results, from its records alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import pandas as pd

from calibration.learners import learner
from calibration.metrics import METRICS, Shown
from sweeps.analysis import costs as costing
from sweeps.analysis import tradeoffs
from sweeps.analysis.comparisons import Baseline, compare, find_baseline
from sweeps.analysis.ensembles import ensembles
from sweeps.analysis.importance import importance
from sweeps.analysis.noise import nll_region, validation_ratio
from sweeps.analysis.recommendation import (
    PLAIN_METHOD,
    REFERENCES,
    Recommendation,
    SweepFacts,
    recommend,
)
from sweeps.analysis.records import SweepRecords
from sweeps.analysis.results import leaderboard, results
from sweeps.analysis.row_evidence import About, RowEvidence
from sweeps.analysis.seed_intervals import GROUPS, with_intervals
from sweeps.analysis.selection import CHOSEN_BY, CHOSEN_BY_ERROR, Selection, select
from sweeps.analysis.statistics import Ranks, ranks
from sweeps.host.stages import stage


@dataclass(frozen=True)
class Analysis:
    """The analysis of a sweep, from its ``records``.

    ``results`` has a line per (dataset, row, calibrator, seed), ``leaderboard`` their
    means over seeds with 95 % intervals (METRIC_ci_low, METRIC_ci_high). ``selection`` is the
    choice by validation data, ``recommendation`` what to use, in sentences and as JSON,
    ``comparisons`` the paired tests against ``baseline``, about the population that ``about``
    names, ``evidence`` the scores of single test rows they use. ``ranks`` are those of the chosen
    rows over datasets by metric, if there are enough of both. ``fronts``, ``hypervolumes``,
    ``importance``, ``costs`` and ``ensembles`` are described where they are made. A sweep with
    nothing confirmed has frames without rows.
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
    ensembles: pd.DataFrame = field(default_factory=pd.DataFrame)
    about: About = "new_data"
    evidence: Mapping[str, RowEvidence] = field(default_factory=dict)

    @property
    def outdated(self) -> int:
        """How many evaluations were made by another version of a metric or a calibrator."""
        return int(self.results["outdated"].sum()) if "outdated" in self.results else 0


@stage("analysis")
def analyse(
    sweep: SweepRecords, baseline: str | None = None, about: About = "new_data"
) -> Analysis:
    """Analyse the present records of a sweep; nothing is trained or evaluated.

    ``baseline`` is a row, or exactly a row with a calibrator as in ``focal + temperature``; see
    ``find_baseline``, whose ``UserError`` it may raise. ``about`` is the population of intervals
    and verdicts: see ``sweeps.analysis.row_evidence.About``. For new data, the scores of
    single test rows are read for the rows that are compared.
    """
    reference = find_baseline(sweep.spec, baseline)
    tidy = results(sweep)
    names = [] if tidy.empty else list(tidy["dataset"].unique())
    complexities = {
        name: learner(row.method).complexity for name, row in sweep.spec.methods.items()
    }
    overlaps = {name: validation_ratio(sweep.loaded, name) for name in names}
    regions = sweep.spec.equivalence
    selection = select(tidy, complexities, overlaps, nll_region(regions))
    if tidy.empty:
        tidy = pd.DataFrame(columns=[*GROUPS, "seed", *METRICS, CHOSEN_BY, "train_seconds"])
        table = tidy.drop(columns="seed").assign(seeds=0, chosen=False, winner=False, tied=False)
        table[[CHOSEN_BY_ERROR, *(f"{name}_sd" for name in METRICS)]] = float("nan")
    else:
        table = leaderboard(tidy, selection)
    crossed = [] if about == "test_set" else sweep.fixed_test_parts
    table = with_intervals(table, tidy, crossed)
    evidence = {name: sweep.row_evidence(name) for name in crossed}
    against = partial(compare, tidy, evidence=evidence, regions=regions, look=sweep.look)
    compared = against(selection.calibrators, reference)
    fronts = tradeoffs.fronts(table)
    return Analysis(
        records=sweep,
        results=tidy,
        leaderboard=table,
        selection=selection,
        recommendation=_recommendation(sweep, selection, table, against),
        comparisons=compared,
        baseline=reference,
        ranks=_ranks(table[table["chosen"]]),
        fronts=fronts,
        hypervolumes=tradeoffs.hypervolumes(fronts, reference, selection.calibrators),
        importance=importance(sweep),
        costs=costing.costs(sweep, compared, reference),
        ensembles=ensembles(sweep, selection),
        about=about,
        evidence=evidence,
    )


def _recommendation(
    sweep: SweepRecords,
    selection: Selection,
    table: pd.DataFrame,
    against: Callable[[Mapping[tuple[str, str], str], Baseline], pd.DataFrame],
) -> Recommendation:
    """What to use, and its gain over the plain network, uncalibrated and with temperature."""
    spec = sweep.spec
    plain_rows = [name for name, row in spec.methods.items() if row.method == PLAIN_METHOD]
    plain = find_baseline(spec) if plain_rows else None
    won = {(dataset, row): calibrator for dataset, (row, calibrator) in selection.winners.items()}
    references = [] if plain is None else [plain._replace(calibrator=c) for c in REFERENCES]
    compared = [
        {str(name): value for name, value in line.items()}
        for baseline in references
        for line in against(won, baseline).to_dict("records")
    ]
    cells = sweep.cells.items()
    facts = SweepFacts(
        list(sweep.loaded.datasets),
        None if plain is None else plain.row,
        len(plain_rows),
        settings={p: t.searched for p, cell in cells for t in cell.search if t.best},
        searched={row: list(spec.space(row).searched) for row in spec.methods},
        remaining=0 if sweep.finished else sweep.total - sweep.done,
        region=nll_region(spec.equivalence),
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
