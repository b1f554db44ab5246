"""Which network is exported: chosen by validation data, or by name."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any

import pandas as pd

from calibration.text import count
from sweeps.analysis import Analysis
from sweeps.analysis.records import ConfirmedTrial, SweepRecords
from sweeps.analysis.results import label
from sweeps.analysis.selection import best_seed
from sweeps.errors import UserError
from sweeps.spec import ORACLE
from sweeps.store import EvaluationRecord, TrialRecord


@dataclass(frozen=True)
class Chosen:
    """One confirmed network with one calibrator.

    ``row`` is its line of the leaderboard (means over seeds), ``seeds`` the tidy lines behind
    it, ``evaluation`` that of this network. ``is_winner``: validation data would choose the row;
    ``row_named`` and ``seed_named``: the user chose it by name instead; ``planned`` is the
    planned number of seeds, ``searched`` whether any hyperparameter was searched.
    """

    trial: ConfirmedTrial
    row_name: str
    calibrator: str
    row: pd.Series[Any]
    seeds: pd.DataFrame
    record: TrialRecord
    evaluation: EvaluationRecord
    is_winner: bool
    row_named: bool
    seed_named: bool
    planned: int
    searched: bool

    @property
    def dataset(self) -> str:
        """The name of its dataset."""
        return self.trial.config.dataset_name

    @property
    def label(self) -> str:
        """The name of the row, e.g. ``focal + temperature``."""
        return label(self.row_name, self.calibrator)


def choose(
    records: SweepRecords,
    analysis: Analysis,
    dataset: str | None = None,
    row: str | None = None,
    seed: int | None = None,
) -> Chosen:
    """The winner on a dataset, or another row of its leaderboard by name.

    Of its confirmed networks the one with the lowest cross-fitted validation NLL, or the one
    of ``seed``. Raises ``UserError`` if the sweep is not finished, has no such dataset, row or
    seed, or no winner.
    """
    dataset, name = _dataset(records, dataset), records.spec.name
    if not records.finished:
        done = f"{records.done} of {count(records.total, 'trial')}"
        raise UserError(f"sweep {name!r} is not finished ({done}); finish it first")
    table = analysis.leaderboard
    rows = table if table.empty else table[table["dataset"] == dataset]
    rows = rows if rows.empty else rows[rows["row"] != ORACLE]
    if rows.empty:
        raise UserError(f"sweep {name!r} has no confirmed network on {dataset}: all failed")
    line = _winner(rows, analysis, name, dataset) if row is None else _named(rows, row, dataset)
    tidy = analysis.results
    method, calibrator = str(line["row"]), str(line["calibrator"])
    same = (tidy["dataset"] == dataset) & (tidy["row"] == method)
    seeds = tidy[same & (tidy["calibrator"] == calibrator)]
    if seed is None:
        number = best_seed(tidy, dataset, method, calibrator)
    else:
        number = _seed(seeds, seed, dataset)
    (trial,) = (t for t in records.confirmed(dataset, method) if t.config.seed == number)
    assert trial.record is not None, "it has a line among the results"
    return Chosen(
        trial,
        method,
        calibrator,
        line,
        seeds,
        trial.record,
        trial.evaluations[calibrator],
        is_winner=analysis.selection.is_winner(dataset, method, calibrator),
        row_named=row is not None,
        seed_named=seed is not None,
        planned=records.spec.confirm_seeds,
        searched=bool(records.spec.space(method).searched),
    )


def _dataset(records: SweepRecords, dataset: str | None) -> str:
    names, sweep = list(records.loaded.datasets), records.spec.name
    if dataset is None and len(names) > 1:
        raise UserError(
            f"sweep {sweep!r} has several datasets; choose one with --dataset: {', '.join(names)}"
        )
    if dataset is not None and dataset not in names:
        raise UserError(f"--dataset: sweep {sweep!r} has no {dataset!r}; it has {', '.join(names)}")
    return dataset or names[0]


def _winner(rows: pd.DataFrame, analysis: Analysis, sweep: str, dataset: str) -> pd.Series[Any]:
    winner = analysis.selection.winners.get(dataset)
    if winner is None:
        raise UserError(
            f"sweep {sweep!r} has no winner on {dataset}; name a row with --row: {_names(rows)}"
        )
    method, calibrator = winner
    return rows[(rows["row"] == method) & (rows["calibrator"] == calibrator)].iloc[0]


def _named(rows: pd.DataFrame, row: str, dataset: str) -> pd.Series[Any]:
    wanted = " + ".join(part.strip() for part in row.split("+")).removesuffix(" + identity")
    names = [label(m, p) for m, p in zip(rows["row"], rows["calibrator"], strict=True)]
    if wanted not in names:
        near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.6)
        remedy = f"did you mean {' or '.join(map(repr, near))}?" if near else _names(rows)
        raise UserError(f"--row: no row {row!r} on {dataset}; {remedy}")
    return rows.iloc[names.index(wanted)]


def _names(rows: pd.DataFrame) -> str:
    shown = [label(m, p) for m, p in zip(rows["row"], rows["calibrator"], strict=True)]
    return ", ".join(shown[:10]) + (", …" if len(shown) > 10 else "")


def _seed(seeds: pd.DataFrame, seed: int, dataset: str) -> int:
    there = sorted(int(number) for number in seeds["seed"])
    if seed not in there:
        raise UserError(
            f"--seed: found {seed}; the row was confirmed on {dataset} with seeds "
            f"{', '.join(map(str, there))}"
        )
    return seed
