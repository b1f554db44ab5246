"""A sweep's results, analysed from its records alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd

from calibration.metrics import METRICS, Shown
from sweeps.analysis import costs as costing
from sweeps.analysis import tradeoffs
from sweeps.analysis.comparisons import Baseline, compare, find_baseline
from sweeps.analysis.importance import importance
from sweeps.analysis.records import SweepRecords
from sweeps.analysis.results import leaderboard, results
from sweeps.analysis.row_evidence import About, RowEvidence
from sweeps.analysis.seed_intervals import GROUPS, with_intervals
from sweeps.analysis.selection import CHOSEN_BY, Selection, select
from sweeps.analysis.statistics import Ranks, ranks


@dataclass(frozen=True)
class Analysis:
    """What can be said of a sweep, from its ``records``.

    ``results`` has a row per (dataset, method, calibrator, seed), ``leaderboard`` their
    means over seeds with 95 % intervals (METRIC_ci_low, METRIC_ci_high). ``selection`` is
    what validation data chose, ``comparisons`` the paired tests against ``baseline``, which
    speak of what ``about`` says, ``evidence`` what they know of single test rows. ``ranks`` are
    those of the chosen over datasets by metric, where there are enough of both. ``fronts``,
    ``hypervolumes``, ``importance`` and ``costs`` are described where they are made. A sweep
    with nothing confirmed has frames without rows.
    """

    records: SweepRecords
    results: pd.DataFrame
    leaderboard: pd.DataFrame
    selection: Selection
    comparisons: pd.DataFrame
    baseline: Baseline
    ranks: dict[str, Ranks]
    fronts: pd.DataFrame
    hypervolumes: dict[str, float]
    importance: pd.DataFrame
    costs: pd.DataFrame
    about: About = "new_data"
    evidence: Mapping[str, RowEvidence] = field(default_factory=dict)

    @property
    def outdated(self) -> int:
        """How many evaluations another version of a metric or a calibrator has made."""
        return int(self.results["outdated"].sum()) if "outdated" in self.results else 0


def analyse(
    sweep: SweepRecords, baseline: str | None = None, about: About = "new_data"
) -> Analysis:
    """Analyse what a sweep has recorded by now; nothing is trained or evaluated.

    ``baseline`` is a row, or exactly a row with a calibrator as in ``focal + temperature``; see
    ``find_baseline``, whose ``UserError`` it may raise. ``about`` is what intervals and
    verdicts speak of: see ``sweeps.analysis.row_evidence.VERDICTS_ABOUT``. For new data what
    single test rows scored is read, of the rows that are compared.
    """
    reference = find_baseline(sweep.spec, baseline)
    tidy = results(sweep)
    selection = select(tidy)
    if tidy.empty:
        tidy = pd.DataFrame(columns=[*GROUPS, "seed", *METRICS, CHOSEN_BY, "train_seconds"])
        table = tidy.drop(columns="seed").assign(seeds=0, chosen=False, winner=False)
        table[[f"{name}_sd" for name in METRICS]] = float("nan")
    else:
        table = leaderboard(tidy, selection)
    crossed = [] if about == "test_set" else sweep.fixed_test_parts
    table = with_intervals(table, tidy, crossed)
    evidence = {name: sweep.row_evidence(name) for name in crossed}
    compared = compare(
        tidy,
        selection.calibrators,
        reference,
        evidence,
        regions=sweep.spec.equivalence,
        look=sweep.look,
    )
    fronts = tradeoffs.fronts(table)
    return Analysis(
        records=sweep,
        results=tidy,
        leaderboard=table,
        selection=selection,
        comparisons=compared,
        baseline=reference,
        ranks=_ranks(table[table["chosen"]]),
        fronts=fronts,
        hypervolumes=tradeoffs.hypervolumes(fronts, reference, selection.calibrators),
        importance=importance(sweep),
        costs=costing.costs(sweep, compared, reference),
        about=about,
        evidence=evidence,
    )


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
