"""The leaderboard of a dataset; only its headline rows if it would take too much space."""

from __future__ import annotations

import pandas as pd
from markupsafe import Markup

from sweeps.analysis.comparisons import by_row
from sweeps.analysis.results import headline_rows
from sweeps.report.leaderboard_table import RowVerdict, RowVerdicts, leaderboard_table
from sweeps.report.section import ReportContext, Section
from sweeps.report.templates import NOTHING, rendered


def _leaderboard(context: ReportContext) -> Markup:
    if context.rows.empty:
        return NOTHING
    headline = headline_rows(context.analysis.leaderboard, context.dataset)
    verdicts, baseline = _verdicts(context), context.analysis.baseline
    rows, seeds = context.rows, context.sweep.spec.confirm_seeds

    def made(some: pd.DataFrame) -> Markup:
        return rendered(
            "leaderboard",
            table=leaderboard_table(
                context.dataset, some, headline, verdicts, baseline.label, seeds
            ),
            headline=len(headline),
            left=len(rows) - len(some),
            baseline=baseline,
        )

    whole = made(rows)
    share = context.room.left // (2 * len(context.sweep.loaded.datasets))
    return context.room.take(whole if len(whole) <= share else made(headline))


def _verdicts(context: ReportContext) -> RowVerdicts:
    return {
        (line["row"], line["calibrator"], line["metric"]): RowVerdict(
            line["verdict"], line["p_holm"], line["difference"]
        )
        for _, line in context.of_dataset(by_row(context.analysis.comparisons)).iterrows()
    }


section = Section("Leaderboard", _leaderboard)
