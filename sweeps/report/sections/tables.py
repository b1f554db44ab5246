"""The tables beside the leaderboard: what mattered, comparisons, costs."""

from __future__ import annotations

import math

import pandas as pd
from markupsafe import Markup

from calibration.metrics import METRICS
from sweeps.analysis.comparisons import BASELINE, Baseline
from sweeps.analysis.results import label
from sweeps.report.section import ReportContext, Section
from sweeps.report.table import Head, SortableTable, TableCell, TableRow
from sweeps.report.templates import NOTHING, macro, rendered
from sweeps.report.wording import number, p_value, seconds


def _tables(context: ReportContext) -> Markup:
    if context.rows.empty:
        return NOTHING
    analysis, baseline, dataset = context.analysis, context.analysis.baseline, context.dataset
    comparisons, costs = map(context.of_dataset, (analysis.comparisons, analysis.costs))
    made = rendered(
        "tables",
        importance=_importance(context.of_dataset(analysis.importance)),
        comparisons=comparisons_table(dataset, comparisons, baseline) if len(comparisons) else None,
        costs=costs_table(dataset, costs, baseline.row) if len(costs) else None,
        baseline=baseline,
    )
    return context.room.take(
        made, macro("macros", "note")("See comparisons.csv, costs.csv, importance.csv.")
    )


def comparisons_table(dataset: str, comparisons: pd.DataFrame, baseline: Baseline) -> SortableTable:
    """Every comparison with the baseline: difference, interval, effect, p-values, verdict."""
    heads = [
        Head("row"),
        Head("against", "the baseline with the same help, or exactly as it was asked for"),
        Head("metric", kind="words"),
        Head("mean"),
        Head("baseline", "the baseline's mean on the same seeds"),
        Head("difference", "negative is better"),
        Head("95 % interval"),
        Head("effect", "the mean difference in standard deviations of the differences"),
        Head("p"),
        Head("p (Holm)", "corrected for all that one dataset's headline speaks of"),
        Head("seeds"),
        Head("verdict", kind="words"),
    ]
    rows = []
    for _, line in comparisons[comparisons["verdict"] != BASELINE].iterrows():
        known = not math.isnan(line["low"])
        cells = [
            TableCell(label(line["row"], line["calibrator"])),
            TableCell(label(baseline.row, line["baseline_calibrator"])),
            TableCell(METRICS.title(line["metric"])),
            TableCell(number(line["mean"]), line["mean"]),
            TableCell(number(line["baseline_mean"]), line["baseline_mean"]),
            TableCell(_signed(line["difference"]), line["difference"]),
            TableCell(
                f"[{_signed(line['low'])}, {_signed(line['high'])}]" if known else "–", line["low"]
            ),
            TableCell(_signed(line["effect"], 2), line["effect"]),
            TableCell(_p(line["p"]), line["p"]),
            TableCell(_p(line["p_holm"]), line["p_holm"]),
            TableCell(str(int(line["pairs"])), line["pairs"]),
            TableCell(macro("macros", "verdict")(str(line["verdict"]))),
        ]
        rows.append(TableRow(cells))
    return SortableTable(f"Comparisons on {dataset}", heads, rows)


def costs_table(dataset: str, costs: pd.DataFrame, baseline: str) -> SortableTable:
    """What every method cost, and what came of it."""
    heads = [
        Head("row"),
        Head("search trials"),
        Head("failed"),
        Head("pruned", "stopped early"),
        Head("search", "training time of all search trials"),
        Head("confirm", "training time of all confirm trials"),
        Head("CPU", "CPU time: training time × CPUs per trial"),
        Head("GPU", "GPU time: training time × GPUs per trial"),
        Head("one training"),
        Head(f"× {baseline}", "the time of one training as a multiple of the baseline's"),
        Head("change in ECE", "against the baseline; negative is better"),
        Head("change in error", "against the baseline; negative is better"),
    ]
    rows = []
    for _, line in costs.iterrows():
        counts = [
            TableCell(str(int(line[c])), line[c]) for c in ("search_trials", "failed", "pruned")
        ]
        times = [
            TableCell(seconds(line[c]), line[c])
            for c in ("search_seconds", "confirm_seconds", "cpu_seconds", "gpu_seconds")
        ]
        relative = line["relative_cost"]
        cells = [
            TableCell(str(line["row"])),
            *counts,
            *times,
            TableCell(seconds(line["seconds_per_training"]), line["seconds_per_training"]),
            TableCell("–" if math.isnan(relative) else f"{relative:.1f}", relative),
            TableCell(_signed(line["ece_change"]), line["ece_change"]),
            TableCell(_signed(line["error_change"]), line["error_change"]),
        ]
        rows.append(TableRow(cells))
    return SortableTable(f"Costs on {dataset}", heads, rows)


def _importance(importance: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """How much of the search's variation each hyperparameter explains, by row."""
    if importance.empty:
        return {}
    known = importance.assign(importance=importance["importance"].fillna(0))
    return {str(row): found for row, found in known.groupby("row", sort=False)}


def _signed(number: float, digits: int = 3) -> str:
    if math.isnan(number):
        return "–"
    return f"{number:+.{digits}f}".replace("-", "−")


def _p(p: float) -> str:
    if math.isnan(p):
        return "–"
    return p_value(p).removeprefix("p ").removeprefix("= ")


section = Section("Tables", _tables)
