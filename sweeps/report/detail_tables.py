"""The tables beside the leaderboard: comparisons, costs, what mattered, what failed."""

from __future__ import annotations

import math
from html import escape

import pandas as pd

from calibration.metrics import METRICS
from sweeps.analysis.comparisons import BASELINE, Baseline
from sweeps.analysis.results import label
from sweeps.report.gather import Gathered
from sweeps.report.html_table import Head, TableCell, TableRow, sortable, text, value
from sweeps.report.leaderboard_table import verdict_html
from sweeps.report.wording import number, p_value, seconds


def comparisons_html(dataset: str, comparisons: pd.DataFrame, baseline: Baseline) -> str:
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
            text(label(line["row"], line["calibrator"])),
            text(label(baseline.row, line["baseline_calibrator"])),
            text(METRICS.title(line["metric"])),
            value(line["mean"], number(line["mean"])),
            value(line["baseline_mean"], number(line["baseline_mean"])),
            value(line["difference"], _signed(line["difference"])),
            value(
                line["low"], f"[{_signed(line['low'])}, {_signed(line['high'])}]" if known else "–"
            ),
            value(line["effect"], _signed(line["effect"], 2)),
            value(line["p"], _p(line["p"])),
            value(line["p_holm"], _p(line["p_holm"])),
            value(line["pairs"], str(int(line["pairs"]))),
            TableCell(verdict_html(str(line["verdict"]))),
        ]
        rows.append(TableRow(cells))
    return sortable(f"Comparisons on {dataset}", heads, rows)


def costs_html(dataset: str, costs: pd.DataFrame, baseline: str) -> str:
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
        counts = [value(line[c], str(int(line[c]))) for c in ("search_trials", "failed", "pruned")]
        times = [
            value(line[c], seconds(line[c]))
            for c in ("search_seconds", "confirm_seconds", "cpu_seconds", "gpu_seconds")
        ]
        relative = line["relative_cost"]
        cells = [
            text(str(line["row"])),
            *counts,
            *times,
            value(line["seconds_per_training"], seconds(line["seconds_per_training"])),
            value(relative, "–" if math.isnan(relative) else f"{relative:.1f}"),
            value(line["ece_change"], _signed(line["ece_change"])),
            value(line["error_change"], _signed(line["error_change"])),
        ]
        rows.append(TableRow(cells))
    return sortable(f"Costs on {dataset}", heads, rows)


def importance_html(importance: pd.DataFrame) -> str:
    """How much of the search's variation each knob explains, by method."""
    blocks = []
    for method, knobs in importance.groupby("row", sort=False):
        trials = int(knobs["trials"].max())
        bars = "".join(
            f'<dt>{escape(str(knob))}</dt><dd class="track">'
            f'<i style="width:{100 * share:.1f}%"></i></dd><dd class="n">{share:.2f}</dd>'
            for knob, share in zip(knobs["knob"], knobs["importance"].fillna(0), strict=True)
        )
        blocks.append(
            f"<div><h4>{escape(str(method))} <small>{trials} trials</small></h4>"
            f"<dl>{bars}</dl></div>"
        )
    return f'<div class="bars">{"".join(blocks)}</div>'


def failures_html(gathered: Gathered) -> str:
    """What failed and why; nothing if nothing did."""
    parts = []
    if gathered.failures:
        heads = [Head("confirm trial"), Head("seed"), Head("reason", kind="words")]
        rows = [
            TableRow([text(f"{f.row} on {f.dataset}"), value(f.seed, str(f.seed)), text(f.reason)])
            for f in gathered.failures
        ]
        parts.append(sortable("Failed confirm trials", heads, rows, "plain"))
    if gathered.reasons:
        heads = [Head("reason of a failed trial"), Head("trials")]
        rows = [
            TableRow([text(reason), value(times, str(times))])
            for reason, times in gathered.reasons.items()
        ]
        parts.append(sortable("Reasons of failures", heads, rows, "plain"))
    if gathered.failed_calibrators:
        heads = [Head("calibrator that failed"), Head("one of its reasons", kind="words")]
        rows = [
            TableRow([text(n), text(reason)]) for n, reason in gathered.failed_calibrators.items()
        ]
        parts.append(sortable("Failed calibrators", heads, rows, "plain"))
    return "".join(parts)


def _signed(number: float, digits: int = 3) -> str:
    if math.isnan(number):
        return "–"
    return f"{number:+.{digits}f}".replace("-", "−")


def _p(p: float) -> str:
    if math.isnan(p):
        return "–"
    return p_value(p).removeprefix("p ").removeprefix("= ")
