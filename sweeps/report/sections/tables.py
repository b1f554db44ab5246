"""The tables besides the leaderboard: importance, comparisons, costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import pandas as pd
from markupsafe import Markup

from calibration.metrics import METRICS, Shown
from sweeps.analysis.comparisons import Baseline
from sweeps.analysis.results import label
from sweeps.analysis.verdicts import BASELINE
from sweeps.report.section import ReportContext, Section
from sweeps.report.table import Head, SortableTable, TableCell, TableRow
from sweeps.report.templates import NOTHING, macro, rendered
from sweeps.report.wording import ensemble_note, number, p_value, seconds


def _tables(context: ReportContext) -> Markup:
    if context.rows.empty:
        return NOTHING
    analysis, baseline, dataset = context.analysis, context.analysis.baseline, context.dataset
    comparisons, costs = map(context.of_dataset, (analysis.comparisons, analysis.costs))
    ensembles = context.of_dataset(analysis.ensembles)
    made = rendered(
        "tables",
        importance=_importance(context.of_dataset(analysis.importance)),
        comparisons=comparisons_table(dataset, comparisons, baseline) if len(comparisons) else None,
        costs=costs_table(dataset, costs, baseline.row) if len(costs) else None,
        ensembles=ensembles_table(dataset, ensembles) if len(ensembles) else None,
        ensemble_note=ensemble_note(ensembles),
        baseline=baseline,
    )
    return context.room.take(
        made, macro("macros", "note")("See comparisons.csv, costs.csv, importance.csv.")
    )


class TableColumn(NamedTuple):
    """A column: its heading, and the function from a line to its cell."""

    head: Head
    cell: Callable[[pd.Series], TableCell]


def comparisons_table(dataset: str, comparisons: pd.DataFrame, baseline: Baseline) -> SortableTable:
    """Every comparison with the baseline: difference, interval, effect, p-values, verdict."""
    asked = "the baseline with the same help, or exactly as requested"
    deviations = "the mean difference in standard deviations of the differences"
    corrected = "corrected for all comparisons in one dataset's headline"
    believed = "the same distribution as a posterior; verdicts are based on p"
    columns = [
        _texts(Head("row"), lambda line: label(line["row"], line["calibrator"])),
        _texts(Head("against", asked), lambda x: label(baseline.row, x["baseline_calibrator"])),
        _texts(Head("metric", kind="words"), lambda line: METRICS.title(line["metric"])),
        _numbers("mean", "mean", number),
        _numbers("baseline", "baseline_mean", number, "the baseline's mean on the same seeds"),
        _numbers("difference", "difference", _signed, "negative is better"),
        TableColumn(Head("95 % interval"), lambda line: TableCell(_interval(line), line["low"])),
        _numbers("effect", "effect", partial(_signed, digits=2), deviations),
        _numbers("region", "region", number, "smaller differences do not matter in practice"),
        _numbers("p", "p", _p, "one-sided, of the likeliest claim"),
        _numbers("p (Holm)", "p_holm", _p, corrected),
        _numbers("P better", "prob_better", _share, believed),
        _numbers("P equivalent", "prob_equivalent", _share, believed),
        _numbers("P worse", "prob_worse", _share, believed),
        _numbers("seeds", "pairs", _whole),
        _texts(Head("verdict", kind="words"), lambda x: macro("macros", "verdict")(x["verdict"])),
        _texts(Head("would decide", kind="words"), lambda line: str(line["would_decide"])),
    ]
    others = comparisons[comparisons["verdict"] != BASELINE]
    return _tabulated(f"Comparisons on {dataset}", columns, others)


def costs_table(dataset: str, costs: pd.DataFrame, baseline: str) -> SortableTable:
    """The cost of every method, and its effect."""
    multiple = "the time of one training as a multiple of the baseline's"
    alone = "the mean of the confirm trials that were trained alone, not in a cohort"
    change = "against the baseline; negative is better"
    columns = [
        _texts(Head("row"), lambda line: str(line["row"])),
        _numbers("search trials", "search_trials", _whole),
        _numbers("failed", "failed", _whole),
        _numbers("pruned", "pruned", _whole, "stopped early"),
        _numbers("search", "search_seconds", seconds, "training time of all search trials"),
        _numbers("confirm", "confirm_seconds", seconds, "training time of all confirm trials"),
        _numbers("CPU", "cpu_seconds", seconds, "CPU time: training time × CPUs per trial"),
        _numbers("GPU", "gpu_seconds", seconds, "GPU time: training time × GPUs per trial"),
        _numbers("one training", "seconds_per_training", seconds, alone),
        _numbers(f"× {baseline}", "relative_cost", partial(number, digits=1), multiple),
        _numbers("change in ECE", "ece_change", _signed, change),
        _numbers("change in error", "error_change", _signed, change),
    ]
    return _tabulated(f"Costs on {dataset}", columns, costs)


def ensembles_table(dataset: str, ensembles: pd.DataFrame) -> SortableTable:
    """The ensembles of every row's networks, with jackknife standard errors."""
    columns = [_texts(Head("row"), lambda line: label(line["row"], line["calibrator"]))]
    for metric in METRICS.names(Shown.LEADERBOARD):
        if metric in ensembles:
            columns.append(_numbers(METRICS.title(metric), metric, number))
            columns.append(_numbers("±", f"{metric}_se", number, "jackknife standard error"))
    columns += [
        _numbers("floor", "floor", number),
        _numbers("training", "train_seconds", seconds, "training time of all members"),
        _numbers("networks", "inference_cost", _whole, "networks per prediction"),
    ]
    return _tabulated(f"Ensembles on {dataset}", columns, ensembles)


def _texts(head: Head, shown: Callable[[pd.Series], str]) -> TableColumn:
    return TableColumn(head, lambda line: TableCell(shown(line)))


def _numbers(text: str, name: str, shown: Callable[[float], str], about: str = "") -> TableColumn:
    return TableColumn(Head(text, about), lambda line: TableCell(shown(line[name]), line[name]))


def _tabulated(name: str, columns: Sequence[TableColumn], lines: pd.DataFrame) -> SortableTable:
    rows = [TableRow([column.cell(line) for column in columns]) for _, line in lines.iterrows()]
    return SortableTable(name, [column.head for column in columns], rows)


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


def _interval(line: pd.Series) -> str:
    known = not math.isnan(line["low"])
    return f"[{_signed(line['low'])}, {_signed(line['high'])}]" if known else "–"


def _whole(count: float) -> str:
    return str(int(count))


def _share(value: float) -> str:
    return number(value, 2)


def _p(p: float) -> str:
    if math.isnan(p):
        return "–"
    return p_value(p).removeprefix("p ").removeprefix("= ")


section = Section("Tables", _tables)
