"""One dataset's part of the page: leaderboard, diagrams, trade-offs, curves, tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import NamedTuple

import pandas as pd
from torch import Tensor

from calibration import metrics
from sweeps.analysis import Analysis
from sweeps.analysis.comparisons import by_row
from sweeps.analysis.results import headline_rows
from sweeps.engine.plan import Plan
from sweeps.report.attempts import Attempts
from sweeps.report.chart import Look, looks
from sweeps.report.detail_tables import comparisons_html, costs_html, importance_html
from sweeps.report.document import PageBudget, folded
from sweeps.report.gather import CURVES, Gathered
from sweeps.report.images import Picture, image_html
from sweeps.report.leaderboard_table import RowVerdict, RowVerdicts, leaderboard_html
from sweeps.report.line_charts import bins_chart, coverage_chart, curves_chart
from sweeps.report.reliability_charts import RELIABILITY_NOTE, reliability_charts
from sweeps.report.trade_off_charts import cost_chart, pareto_chart
from sweeps.report.wording import count
from sweeps.store import file_name

FEW_PANELS = 8
KINDS = {"points": "points of the plane", "table": "a table", "image": "images"}
_KEY = (
    ("--pale", "accuracy of the bin"),
    ("--over", "over-confident by so much"),
    ("--under", "under-confident by so much"),
    ("--muted", "where a calibrated model would be, 95 %"),
    ("--ink", "95 % interval of the accuracy"),
)
CURVE_NOTES = {
    "validation/ece": "First seed. It may rise while the network still improves.",
    "validation/nll": "First seed. Its lowest point is where early stopping stops.",
    "validation/gamma_mean": "The focal parameter that γ-Net gives validation points. First seed.",
    "validation/gamma_std": "How much γ differs from point to point. First seed.",
}


class DatasetParts(NamedTuple):
    """A dataset's part of the page, pictures apart."""

    anchor: str
    dataset: str
    html: str


def dataset_parts(
    room: PageBudget,
    plan: Plan,
    analysis: Analysis,
    gathered: Gathered,
    dataset: str,
    attempts: Attempts,
) -> DatasetParts:
    """The tables and charts of a dataset, as far as there is room and they can be made."""
    anchor = f"data-{list(plan.loaded.datasets).index(dataset)}"
    table = analysis.leaderboard
    rows = table if table.empty else table[table["dataset"] == dataset]
    made: dict[str, Callable[[], str]] = {"facts": lambda: room.take(_facts_html(plan, dataset))}
    if rows.empty:
        made["note"] = lambda: room.take("<p>No confirmed trial.</p>")
    else:
        made |= _sections(room, plan, analysis, gathered, dataset, rows)
    html = [
        attempts.part(f"the section {name!r} of {dataset}", make, "") for name, make in made.items()
    ]
    return DatasetParts(anchor, dataset, "".join(html))


def _sections(
    room: PageBudget,
    plan: Plan,
    analysis: Analysis,
    gathered: Gathered,
    dataset: str,
    rows: pd.DataFrame,
) -> dict[str, Callable[[], str]]:
    """What makes each section of a dataset that has rows, by its heading."""
    pairs = list(zip(rows["row"], rows["calibrator"], strict=True))
    styles = looks(
        sorted(pairs, key=lambda p: plan.spec.calibrator_names.index(p[1])), plan.spec.methods
    )
    shown = {name: row.pair for name, row in gathered.shown[dataset].items()}
    named = {name: styles[row.row, row.calibrator] for name, row in gathered.shown[dataset].items()}
    files = f"figures/{file_name(dataset)}"
    return {
        "Leaderboard": lambda: _leaderboard(room, plan, analysis, dataset, rows),
        "Reliability": lambda: reliability_html(
            room, shown, plan.spec.bins, _seed_note(gathered, dataset), files
        ),
        "Trade-offs": lambda: _trade_offs(room, analysis, dataset, styles),
        "Bins and abstention": lambda: rows_html(room, shown, named, files),
        "Training": lambda: _curves(room, gathered, dataset, plan, files),
        "Tables": lambda: _tables(room, analysis, dataset),
    }


def pictures_html(room: PageBudget, pictures: Sequence[Picture]) -> str:
    """Pictures that fit; the others by the names of their files."""
    made = []
    for shown in pictures:
        note = f'<p class="note">{escape(shown.title)}: see figures/{escape(shown.name)}.png.</p>'
        made.append(room.take(image_html(shown), note))
    return f"<h3>Pictures</h3>{''.join(made)}" if made else ""


def leaderboard_tools(rows: int, headline: int) -> str:
    """The buttons over a leaderboard."""
    choice = ""
    if rows > headline:
        choice = (
            '<fieldset aria-label="Rows"><button type="button" data-toggle="all-rows" data-on="0" '
            'aria-pressed="true">best calibrator of each method</button><button type="button" '
            f'data-toggle="all-rows" data-on="1" aria-pressed="false">all {rows} rows</button>'
            "</fieldset>"
        )
    return (
        f'<div class="tools">{choice}<button type="button" data-toggle="all-metrics" '
        'aria-pressed="false">more metrics</button></div>'
    )


def reliability_html(
    room: PageBudget,
    shown: Mapping[str, tuple[Tensor, Tensor]],
    bins: int,
    seeds: str,
    files: str,
) -> str:
    """Reliability diagrams side by side; more than a few wait behind a button."""
    if not shown:
        return ""
    panels = []
    for name, chart in reliability_charts(shown, bins).items():
        error = float(metrics.ece(*shown[name], bins=bins))
        floor = metrics.noise_floor(shown[name][0], bins=bins).mean
        heading = f"<b>{escape(name)}</b> ECE {error:.3f} · floor {float(floor):.3f}"
        panels.append(room.chart(chart, heading, f"{files}_reliability.png"))
    key = "".join(
        f'<li><i style="background:var({colour})"></i>{escape(text)}</li>' for colour, text in _KEY
    )
    few, more = "", ""
    if len(panels) > FEW_PANELS:
        few = " few"
        more = (
            '<div class="tools"><button type="button" data-more>'
            f"show all {len(panels)} diagrams</button></div>"
        )
    return (
        f'<h3>Reliability</h3><p class="note">{escape(f"{RELIABILITY_NOTE} {seeds}")}</p>'
        f'<ul class="key">{key}</ul><div class="panels{few}">{"".join(panels)}</div>{more}'
    )


def rows_html(
    room: PageBudget,
    shown: Mapping[str, tuple[Tensor, Tensor]],
    styles: Mapping[str, Look],
    files: str,
) -> str:
    """Bin robustness and risk–coverage."""
    if not shown:
        return ""
    charts = room.chart(bins_chart(shown, styles), instead=f"{files}_bins.png")
    charts += room.chart(coverage_chart(shown, styles), instead=f"{files}_coverage.png")
    return f'<h3>Bins and abstention</h3><div class="charts">{charts}</div>'


def _leaderboard(
    room: PageBudget, plan: Plan, analysis: Analysis, dataset: str, rows: pd.DataFrame
) -> str:
    headline = headline_rows(analysis.leaderboard, dataset)
    verdicts = _verdicts(analysis, dataset)

    def made(some: pd.DataFrame) -> str:
        seeds = plan.spec.confirm_seeds
        table = leaderboard_html(dataset, some, headline, verdicts, analysis.baseline.label, seeds)
        note = (
            "Ordered by cross-fitted validation NLL; ★ is the row that validation data chose. "
            "Points are means over seeds, lines their 95 % intervals, the tick in ECE the noise "
            f"floor. Compared with {analysis.baseline.about}; others are not tested. Press a "
            "heading to sort."
        )
        left = len(rows) - len(some)
        note += f" {left} further rows are in leaderboard.csv." if left else ""
        tools = leaderboard_tools(len(some), len(headline))
        return f'<h3>Leaderboard</h3>{tools}{table}<p class="note">{escape(note)}</p>'

    whole = made(rows)
    share = room.left // (2 * len(plan.loaded.datasets))
    return room.take(whole if len(whole) <= share else made(headline))


def _facts_html(plan: Plan, dataset: str) -> str:
    data = plan.loaded.datasets[dataset]
    tested = count(len(data.test(plan.spec.seed + 1).labels), "test point")
    drawn = "fresh data for every seed" if data.independent_draws else "the same for all seeds"
    facts = f"{KINDS[data.kind]}, {data.classes} classes; {tested}, {drawn}"
    return f'<p class="facts data">{escape(facts)}</p>'


def _verdicts(analysis: Analysis, dataset: str) -> RowVerdicts:
    table = by_row(analysis.comparisons)
    found = table if table.empty else table[table["dataset"] == dataset]
    return {
        (line["row"], line["calibrator"], line["metric"]): RowVerdict(
            line["verdict"], line["p_holm"], line["difference"]
        )
        for _, line in found.iterrows()
    }


def _seed_note(gathered: Gathered, dataset: str) -> str:
    rows = gathered.shown[dataset].items()
    seeds = sorted({row.seed for _, row in rows})
    if not seeds:
        return ""
    if len(seeds) == 1:
        return f"Seed {seeds[0]} alone: pooled seeds would look surer than they are."
    others = ", ".join(f"{name}: {row.seed}" for name, row in rows if row.seed != seeds[0])
    return f"One seed of each row, {seeds[0]} (but {others})."


def _trade_offs(
    room: PageBudget, analysis: Analysis, dataset: str, styles: Mapping[tuple[str, str], Look]
) -> str:
    points = analysis.fronts
    if points.empty or points[points["dataset"] == dataset].empty:
        return ""
    points = points[points["dataset"] == dataset].dropna(subset=["error", "ece"])
    tidy = analysis.results.dropna(subset=["hyperparameters"])
    used = {
        (row["dataset"], row["row"]): row["hyperparameters"]
        for _, row in tidy.drop_duplicates(["dataset", "row"]).iterrows()
    }
    charts = room.chart(
        pareto_chart(points, styles, used, analysis.hypervolumes.get(dataset, math.nan))
    )
    charts += room.chart(cost_chart(points, styles, used))
    return f'<h3>Trade-offs</h3><div class="charts">{charts}</div>'


def _curves(room: PageBudget, gathered: Gathered, dataset: str, plan: Plan, files: str) -> str:
    plain = looks(((method, "identity") for method in plan.spec.methods), plan.spec.methods)
    styles = {method: look for (method, _), look in plain.items()}
    charts = [
        room.chart(curves_chart(CURVES[column], CURVE_NOTES[column], named, styles))
        for column, named in gathered.curves[dataset].items()
    ]
    return f'<h3>Training</h3><div class="charts">{"".join(charts)}</div>' if charts else ""


def _tables(room: PageBudget, analysis: Analysis, dataset: str) -> str:
    def mine(table: pd.DataFrame) -> pd.DataFrame:
        return table if table.empty else table[table["dataset"] == dataset]

    made, baseline = "", analysis.baseline
    importance = mine(analysis.importance)
    if not importance.empty:
        note = (
            "The share of the differences between a method's search trials that each setting "
            "explains. With few trials these shares are rough."
        )
        made += f'<h3>Which settings mattered</h3><p class="note">{escape(note)}</p>'
        made += importance_html(importance)
    comparisons = mine(analysis.comparisons)
    if not comparisons.empty:
        content = comparisons_html(dataset, comparisons, baseline)
        made += "<h3>Tables</h3>" + folded(f"All comparisons with {baseline.label}", content)
    costs = mine(analysis.costs)
    if not costs.empty:
        made += folded("What it cost", costs_html(dataset, costs, baseline.row))
    return room.take(made, '<p class="note">See comparisons.csv, costs.csv, importance.csv.</p>')
