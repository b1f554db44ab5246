"""A sweep in notebooks: a leaderboard with few columns, as a frame and as HTML."""

from __future__ import annotations

from typing import Any, ClassVar

import pandas as pd

from sweeps.analysis import Analysis
from sweeps.analysis.records import SweepRecords
from sweeps.analysis.selection import CANDIDATE, CHOSEN_BY
from sweeps.report.columns import by_importance
from sweeps.report.templates import rendered
from sweeps.report.terminal import leaderboard_tables

MOST_COLUMNS = 12
"""As many columns as a notebook shows without scrolling."""


class Leaderboard(pd.DataFrame):
    """The most useful columns of a leaderboard; ``full`` has all of them.

    Results computed from it (a selection of rows, a group) are ordinary DataFrames.
    """

    _internal_names: ClassVar[list[str]] = [*pd.DataFrame._internal_names, "_full"]  # type: ignore[attr-defined]
    _internal_names_set: ClassVar[set[str]] = set(_internal_names)

    def __init__(self, *arguments: Any, full: pd.DataFrame | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._full = full

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    @property
    def full(self) -> pd.DataFrame:
        """Every metric with its spread and interval, as in ``leaderboard.csv``."""
        return self if self._full is None else self._full


def slim(table: pd.DataFrame) -> Leaderboard:
    """At most ``MOST_COLUMNS`` columns: the deciding one, the metrics by importance, the cost."""
    first = [*CANDIDATE, "winner", CHOSEN_BY, f"{CHOSEN_BY}_sd"]
    last = ["floor", "train_seconds", "seeds"]
    room = MOST_COLUMNS - len(first) - len(last)
    metrics = [metric for metric in by_importance() if metric in table][:room]
    columns = [name for name in [*first, *metrics, *last] if name in table]
    return Leaderboard(table[columns], full=table)


def sweep_html(sweep: SweepRecords, analysis: Analysis) -> str:
    """The recommendation, and every dataset's leaderboard as in the terminal; text is escaped."""
    tables = leaderboard_tables(analysis, sweep)
    return rendered(
        "notebook", sweep=sweep, sentences=analysis.recommendation.sentences, tables=tables
    )
