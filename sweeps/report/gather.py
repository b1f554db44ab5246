"""What a report draws, gathered before it is drawn: predictions, curves, failures, versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pandas as pd
from torch import Tensor

from calibration.metrics.class_view import ClassView
from sweeps.analysis.records import ConfirmedTrial, SweepRecords
from sweeps.analysis.results import failed_calibrators, headline_rows, label
from sweeps.errors import UserError
from sweeps.report.attempts import Attempts
from sweeps.spec import ORACLE

CURVES = {
    "validation/ece": "validation ECE",
    "validation/nll": "validation NLL",
    "validation/gamma_mean": "mean of γ on validation data",
    "validation/gamma_std": "standard deviation of γ on validation data",
}
_Points = list[tuple[float, float]]


class ShownRow(NamedTuple):
    """One row of the leaderboard on the test data of one seed.

    ``classes`` is None of a calibrator without probabilities; ``groups`` are those of the rows,
    None if they belong to none.
    """

    row: str
    calibrator: str
    seed: int
    confidence: Tensor
    correct: Tensor
    classes: ClassView | None = None
    groups: Tensor | None = None

    @property
    def pair(self) -> tuple[Tensor, Tensor]:
        """Confidence and correctness."""
        return self.confidence, self.correct


class Failure(NamedTuple):
    """A confirm trial that failed."""

    dataset: str
    row: str
    seed: int
    reason: str


@dataclass(frozen=True)
class Gathered:
    """What a report shows of a sweep besides its tables.

    ``shown`` holds rows by dataset and name, ``curves`` points by dataset, column and method.
    One confirmed seed of a row is drawn, its first: pooling seeds would count a fixed test
    set several times and make intervals look better than they are.
    """

    shown: dict[str, dict[str, ShownRow]]
    curves: dict[str, dict[str, dict[str, _Points]]]
    failures: list[Failure]
    reasons: Mapping[str, int]
    failed_calibrators: dict[str, str]
    environments: Counter[tuple[tuple[str, str], ...]]


def gather(
    sweep: SweepRecords, tidy: pd.DataFrame, table: pd.DataFrame, attempts: Attempts
) -> Gathered:
    """Gather it; ``tidy`` and ``table`` are the results and the leaderboard."""
    shown: dict[str, dict[str, ShownRow]] = {}
    curves = {}
    failures: list[Failure] = []
    environments: Counter[tuple[tuple[str, str], ...]] = Counter()
    for dataset in sweep.loaded.datasets:
        shown[dataset] = {}
        for name, pair in rows_to_show(sweep, table, dataset).items():
            # The scores of the test rows may have been damaged since.
            found = attempts.part(
                f"the diagrams of {name} on {dataset}",
                partial(drawn_row, sweep, tidy, dataset, *pair),
                None,
            )
            if found is not None:
                shown[dataset][name] = found
        curves[dataset] = _curves(sweep, dataset)
        for row in sweep.spec.methods:
            for trial in sweep.confirmed(dataset, row):
                if trial.record is None:
                    continue
                environments[tuple(trial.record.environment.items())] += 1
                if trial.record.status == "failed":
                    reason = trial.record.reason
                    failures.append(Failure(dataset, row, trial.config.seed, reason))
    calibrators = failed_calibrators(sweep)
    return Gathered(shown, curves, failures, sweep.reasons, calibrators, environments)


def first_confirmed(sweep: SweepRecords, dataset: str) -> dict[str, ConfirmedTrial]:
    """The first confirmed trial of every row that has one."""
    found: dict[str, ConfirmedTrial] = {}
    for row in sweep.spec.methods:
        first = next((t for t in sweep.confirmed(dataset, row) if t.done is not None), None)
        if first is not None:
            found[row] = first
    return found


def rows_to_show(
    sweep: SweepRecords, table: pd.DataFrame, dataset: str
) -> dict[str, tuple[str, str]]:
    """Row and calibrator by name: those of the published table, or the headline's."""
    if table.empty:
        return {}
    rows = table[(table["dataset"] == dataset) & (table["row"] != ORACLE)]
    there = {label(m, p): (m, p) for m, p in zip(rows["row"], rows["calibrator"], strict=True)}
    if sweep.spec.table is not None:
        wanted = sweep.spec.table.rows.items()
        plain = {name: ours.removesuffix(" + identity") for name, ours in wanted}
        return {name: there[ours] for name, ours in plain.items() if ours in there}
    chosen = headline_rows(rows, dataset)
    names = [label(m, p) for m, p in zip(chosen["row"], chosen["calibrator"], strict=True)]
    return {name: there[name] for name in names}


def drawn_row(
    sweep: SweepRecords, tidy: pd.DataFrame, dataset: str, row: str, calibrator: str
) -> ShownRow:
    """A row with a calibrator, as its evaluation left it, in one confirmed trial.

    Raises ``UserError`` if the scores of its test rows are not stored.
    """
    # The first seed that has this row: a calibrator may have failed on an earlier one.
    mine = (tidy["dataset"] == dataset) & (tidy["row"] == row)
    first = tidy[mine & (tidy["calibrator"] == calibrator)].iloc[0]
    (trial,) = (t for t in sweep.confirmed(dataset, row) if t.key == first["key"])
    scores = sweep.row_scores(trial, calibrator)
    if scores is None:
        raise UserError(
            f"trial {trial.key}: the scores of its test rows with {calibrator!r} are not stored; "
            "run the sweep again to re-evaluate it"
        )
    pair = scores.confidence.double(), scores.correct
    return ShownRow(row, calibrator, int(first["seed"]), *pair, scores.class_view, scores.groups)


def _curves(sweep: SweepRecords, dataset: str) -> dict[str, dict[str, _Points]]:
    """The measurements over epochs that have more than one point."""
    found: dict[str, dict[str, _Points]] = {}
    for row, trial in first_confirmed(sweep, dataset).items():
        curve = trial.record.curve if trial.record else ()
        for column in CURVES:
            points = [(p["epoch"], p[column]) for p in curve if column in p]
            if len(points) > 1:
                found.setdefault(column, {})[row] = points
    return {column: found[column] for column in CURVES if column in found}
