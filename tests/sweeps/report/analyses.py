"""Analyses made by hand, to say what sentences and tables must say of them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pandas as pd

from sweeps.analysis import Analysis, Baseline
from sweeps.analysis.comparisons import CHOSEN, COMPARISON_COLUMNS
from sweeps.analysis.recommendation import Recommendation
from sweeps.analysis.selection import CANDIDATE, Selection, select
from sweeps.spec import ORACLE

METRICS = {"ece": 0.024, "nll": 0.335, "brier": 0.19, "error": 0.125}


def row(
    method: str,
    calibrator: str = "identity",
    *,
    dataset: str = "blobs",
    winner: bool = False,
    chosen: bool | None = None,
    seeds: int = 5,
    floor: float = 0.021,
    ci: tuple[float, float] = (0.019, 0.031),
    **values: float,
) -> dict[str, Any]:
    """A line of the leaderboard; a winner is also the one chosen for its row."""
    found: dict[str, Any] = {"dataset": dataset, "row": method, "calibrator": calibrator}
    found |= METRICS | values | {"floor": floor, "seeds": seeds, "winner": winner}
    found["chosen"] = winner if chosen is None else chosen
    found |= {"train_seconds": 1.5, "validation/nll": 0.3, "converged": 1.0}
    return found | {"ece_ci_low": ci[0], "ece_ci_high": ci[1]}


def oracle(**values: Any) -> dict[str, Any]:
    """The oracle's line."""
    return row(ORACLE, **values) | {"train_seconds": math.nan, "validation/nll": math.nan}


def compared(
    method: str,
    calibrator: str = "identity",
    *,
    dataset: str = "blobs",
    pairs: int = 5,
    comparison: str = CHOSEN,
    **verdicts: tuple[str, float],
) -> list[dict[str, Any]]:
    """The lines of a row's comparisons: a verdict and its p-value for each metric."""
    lines = []
    for metric in ("ece", "nll", "brier", "error"):
        verdict, p = verdicts.get(metric, ("undecided", 0.5))
        difference = {"better": -0.01, "worse": 0.01}.get(verdict, 0.001)
        line = {"dataset": dataset, "row": method, "calibrator": calibrator, "metric": metric}
        line |= {
            "comparison": comparison,
            "baseline_calibrator": "identity",
            "pairs": pairs,
            "mean": 0.131,
            "baseline_mean": 0.131 - difference,
        }
        line |= {"difference": difference, "low": -0.1, "high": 0.1, "effect": 0.2}
        line |= {
            "region": 0.005,
            "would_decide": "about 6 more seeds" if verdict == "undecided" else "",
        }
        lines.append(line | {"p": p, "p_holm": p, "verdict": verdict})
    return lines


def selection(tidy: pd.DataFrame) -> Selection:
    """What the lines say was chosen, and who could not be."""
    if tidy.empty:
        return Selection()
    lines = tidy.drop_duplicates(CANDIDATE).to_dict("records")
    return replace(
        select(tidy),
        calibrators={(x["dataset"], x["row"]): x["calibrator"] for x in lines if x["chosen"]},
        winners={x["dataset"]: (x["row"], x["calibrator"]) for x in lines if x["winner"]},
    )


def analysis(
    rows: list[dict[str, Any]],
    comparisons: list[dict[str, Any]] | None = None,
    *,
    floor_q95: float = 0.031,
    **parts: Any,
) -> Analysis:
    """An analysis with these lines; every row has the same numbers on all its seeds."""
    table = pd.DataFrame(rows)
    tidy = pd.DataFrame(
        {**line, "seed": seed, "floor_q95": floor_q95}
        for line in rows
        for seed in range(line["seeds"])
    )
    empty = pd.DataFrame()
    return Analysis(
        **{
            "records": None,
            "results": tidy,
            "leaderboard": table,
            "selection": selection(tidy),
            "recommendation": Recommendation(),
            "comparisons": pd.DataFrame(comparisons or [], columns=COMPARISON_COLUMNS),
            "baseline": Baseline("standard"),
            "ranks": {},
            "fronts": empty,
            "hypervolumes": {},
            "importance": empty,
            "costs": empty,
        }
        | parts
    )
