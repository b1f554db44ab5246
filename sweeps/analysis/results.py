"""Records → tidy results → leaderboard.

The leaderboard is ordered by cross-fitted *validation* NLL, averaged over the confirm
seeds: the order is a choice, and choices are not made on test data. What was chosen,
``sweeps.analysis.selection`` decides. The test columns only report.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pandas as pd

from sweeps.analysis.selection import CANDIDATE, CHOSEN_BY, Selection
from sweeps.engine.plan import Plan
from sweeps.engine.trial import FAILED, is_outdated
from sweeps.spec import ORACLE
from sweeps.store import Store

NOT_AVERAGED = ("seed", "key", "converged", "outdated", "hyperparameters")


def results(plan: Plan, store: Store) -> pd.DataFrame:
    """One row per (dataset, method, calibrator, seed) with every metric and its interval."""
    return pd.DataFrame(_rows(plan, store))


def leaderboard(tidy: pd.DataFrame, selection: Selection) -> pd.DataFrame:
    """Mean and standard deviation over seeds, best first.

    ``chosen`` marks the calibrator of each row, ``winner`` one line per dataset, both as the
    selection has it. ``converged`` is the share of seeds on which the calibrator's fit reached
    its optimum.
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
    return table


def pareto(plan: Plan) -> pd.DataFrame:
    """The search trials of every cell that no other beats in all objectives, one per row."""
    names = [objective.metric for objective in plan.spec.search.objective]
    return pd.DataFrame(
        {
            "dataset": cell.dataset,
            "row": cell.row,
            "trial": number,
            **dict(zip(names, cell.study.values(number) or (), strict=True)),
            "hyperparameters": json.dumps(plan.hyperparameters(cell, number)),
            "confirmed": number == cell.study.best(),
            "key": plan.search_entry(cell, number).key,
        }
        for cell in plan.cells.values()
        for number in cell.study.front()
    )


def headline_rows(table: pd.DataFrame, dataset: str) -> pd.DataFrame:
    """Each row as it is and with its chosen calibrator, and the oracle."""
    rows = table[table["dataset"] == dataset]
    return rows[rows["chosen"] | (rows["calibrator"] == "identity")]  # the oracle's too


def failed_calibrators(plan: Plan, store: Store) -> dict[str, str]:
    """The calibrators that raised, each with one of its reasons."""
    return {
        name: evaluation[FAILED]
        for dataset, row in plan.cells
        for entry in plan.confirmed(dataset, row)
        for name, evaluation in store.evaluations(entry.key, plan.spec.evaluation.tag).items()
        if name in plan.spec.calibrator_names and FAILED in evaluation
    }


def label(method: str, calibrator: str) -> str:
    """How a row is called: ``focal + temperature``."""
    return method if calibrator == "identity" else f"{method} + {calibrator}"


def _rows(plan: Plan, store: Store) -> Iterator[dict[str, Any]]:
    for dataset in plan.loaded.datasets:
        oracles: dict[int, dict[str, Any]] = {}
        for row_name in plan.spec.methods:
            for entry in plan.confirmed(dataset, row_name):
                record = store.record(entry.key)
                if record is None or record["status"] != "done":
                    continue
                evaluations = store.evaluations(entry.key, plan.spec.evaluation.tag)
                if "test" in evaluations.get(ORACLE, {}):
                    oracles.setdefault(entry.config.seed, evaluations[ORACLE])
                for name in plan.spec.calibrator_names:
                    if "test" not in evaluations.get(name, {}):
                        continue
                    row = {"dataset": dataset, "row": row_name, "calibrator": name}
                    yield (
                        row
                        | {"seed": entry.config.seed}
                        | _flat(evaluations[name])
                        | {
                            "train_seconds": record["seconds"],
                            "hyperparameters": json.dumps(entry.config.hyperparameters),
                            "key": entry.key,
                            "outdated": is_outdated(name, evaluations[name]),
                        }
                    )
        for seed, found in oracles.items():
            row = {"dataset": dataset, "row": ORACLE, "calibrator": "identity"}
            outdated = is_outdated("identity", found)  # it depends on the metrics alone
            yield row | {"seed": seed} | _flat(found) | {"outdated": outdated}


def _flat(evaluation: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {name: float(value) for name, value in evaluation["test"].items()}
    for name, (low, high) in evaluation["intervals"].items():
        row |= {f"{name}_low": float(low), f"{name}_high": float(high)}
    row["floor"], row["floor_q95"] = (float(v) for v in evaluation["floor"])
    row |= {f"validation/{n}": float(v) for n, v in evaluation["validation"].items()}
    row |= {f"large_{n}": float(v) for n, v in evaluation.get("large", {}).items()}
    return row | {"converged": evaluation["converged"]}
