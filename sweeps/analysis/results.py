"""Records → tidy results → leaderboard.

The leaderboard is ordered by cross-fitted *validation* NLL, averaged over the confirm
seeds: the first row is not chosen on test data. ``sweeps.analysis.selection`` makes the
choice; the test columns are only reported.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from sweeps.analysis.records import ConfirmedTrial, SweepRecords
from sweeps.analysis.selection import CANDIDATE, CHOSEN_BY, CHOSEN_BY_ERROR, Selection
from sweeps.spec import ORACLE
from sweeps.store import EvaluationRecord

NOT_AVERAGED = ("seed", "key", "converged", "outdated", "hyperparameters")


def results(sweep: SweepRecords) -> pd.DataFrame:
    """One line per (dataset, row, calibrator, seed) with every metric and its interval."""
    return pd.DataFrame(_lines(sweep))


def leaderboard(tidy: pd.DataFrame, selection: Selection) -> pd.DataFrame:
    """Mean and standard deviation over seeds, best first.

    ``chosen`` marks the calibrator of each row, ``winner`` one line per dataset and ``tied``
    those that validation data cannot distinguish from the best, all as in the selection;
    ``validation/nll_se`` is one standard error of the difference from the best. ``converged``
    is the share of seeds on which the calibrator's fit reached its optimum.
    """
    if tidy.empty:
        return tidy
    numbers = [c for c in tidy.columns if c not in {*CANDIDATE, *NOT_AVERAGED}]
    grouped = tidy.groupby(CANDIDATE, sort=False)
    table = grouped[numbers].mean()
    spread = grouped[numbers].std(ddof=1).add_suffix("_sd")
    table = pd.concat([table, spread], axis=1)
    table["seeds"] = grouped["seed"].nunique()
    table["converged"] = grouped["converged"].mean()
    table = table.reset_index().sort_values(
        ["dataset", CHOSEN_BY], kind="stable", na_position="last", ignore_index=True
    )
    candidates = list(zip(*(table[name] for name in CANDIDATE), strict=True))
    table["chosen"] = [selection.is_chosen(*candidate) for candidate in candidates]
    table["winner"] = [selection.is_winner(*candidate) for candidate in candidates]
    standings = [selection.standings.get(candidate) for candidate in candidates]
    table["tied"] = [found is not None and found.tied for found in standings]
    table[CHOSEN_BY_ERROR] = [math.nan if found is None else found.error for found in standings]
    return table


def pareto(sweep: SweepRecords) -> pd.DataFrame:
    """The search trials of every cell that no other beats in all objectives, one per row."""
    names = [objective.metric for objective in sweep.spec.search.objective]
    return pd.DataFrame(
        {
            "dataset": cell.dataset,
            "row": cell.row,
            "trial": trial.number,
            **dict(zip(names, trial.values, strict=True)),
            "hyperparameters": json.dumps(trial.searched),
            "confirmed": trial.best,
            "key": trial.key,
        }
        for cell in sweep.cells.values()
        for trial in cell.search
        if trial.on_front
    )


def headline_rows(table: pd.DataFrame, dataset: str) -> pd.DataFrame:
    """Each row uncalibrated and with its chosen calibrator, and the oracle."""
    rows = table[table["dataset"] == dataset]
    return rows[rows["chosen"] | (rows["calibrator"] == "identity")]  # the oracle's too


def failed_calibrators(sweep: SweepRecords) -> dict[str, str]:
    """The calibrators that raised, each with one of its reasons."""
    return {
        name: evaluation.failed
        for cell in sweep.cells.values()
        for trial in cell.confirmed
        for name, evaluation in trial.evaluations.items()
        if name in sweep.spec.calibrator_names and evaluation.failed
    }


def label(method: str, calibrator: str) -> str:
    """The name of a row with a calibrator: ``focal + temperature``."""
    return method if calibrator == "identity" else f"{method} + {calibrator}"


def _lines(sweep: SweepRecords) -> Iterator[dict[str, Any]]:
    for dataset in sweep.loaded.datasets:
        oracles: dict[int, ConfirmedTrial] = {}
        for row in sweep.spec.methods:
            for trial in sweep.confirmed(dataset, row):
                if trial.done is None:
                    continue
                oracle = trial.evaluations.get(ORACLE)
                if oracle is not None and not oracle.failed:
                    oracles.setdefault(trial.config.seed, trial)
                for name in sweep.spec.calibrator_names:
                    found = trial.evaluations.get(name)
                    if found is None or found.failed:
                        continue
                    line = {"dataset": dataset, "row": row, "calibrator": name}
                    yield (
                        line
                        | _measured(trial.config.seed, found)
                        | {
                            "train_seconds": trial.done.seconds_alone,
                            "hyperparameters": json.dumps(trial.config.hyperparameters),
                            "key": trial.key,
                            "outdated": name in trial.outdated,
                        }
                    )
        for seed, trial in oracles.items():
            line = {"dataset": dataset, "row": ORACLE, "calibrator": "identity"}
            measured = _measured(seed, trial.evaluations[ORACLE])
            yield line | measured | {"outdated": ORACLE in trial.outdated}


def _measured(seed: int, evaluation: EvaluationRecord) -> dict[str, Any]:
    line: dict[str, Any] = {"seed": seed, **evaluation.test}
    for name, (low, high) in evaluation.intervals.items():
        line |= {f"{name}_low": low, f"{name}_high": high}
    line["floor"], line["floor_q95"] = evaluation.floor or (math.nan, math.nan)
    line |= {f"validation/{name}": value for name, value in evaluation.validation.items()}
    line |= {f"large_{name}": value for name, value in evaluation.large.items()}
    return line | {"converged": evaluation.converged}
