"""A section of the report, and the context that it is made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd
from markupsafe import Markup
from torch import Tensor

from sweeps.analysis import Analysis
from sweeps.analysis.records import SweepRecords
from sweeps.report.chart import Look, looks
from sweeps.report.document import PageBudget
from sweeps.report.gather import Gathered
from sweeps.report.images import Picture
from sweeps.store import file_name

DrawnPredictions = Mapping[str, tuple[Tensor, Tensor]]
"""Confidence and correctness by the name of a row."""


@dataclass(frozen=True)
class ReportContext:
    """The inputs of a section; ``dataset`` is the one it is about, if any.

    Whatever a section adds to the page besides a heading, it takes from ``room``.
    """

    sweep: SweepRecords
    analysis: Analysis
    gathered: Gathered
    pictures: Sequence[Picture]
    published: pd.DataFrame | None
    room: PageBudget
    dataset: str = ""

    def of_dataset(self, table: pd.DataFrame) -> pd.DataFrame:
        """The lines of a table that are about this dataset."""
        return table if table.empty else table[table["dataset"] == self.dataset]

    @property
    def rows(self) -> pd.DataFrame:
        """This dataset's rows of the leaderboard."""
        return self.of_dataset(self.analysis.leaderboard)

    @property
    def shown(self) -> DrawnPredictions:
        """The predictions of this dataset that are drawn."""
        return {name: row.pair for name, row in self.gathered.shown[self.dataset].items()}

    @property
    def styles(self) -> dict[tuple[str, str], Look]:
        """The look of every row and calibrator of this dataset."""
        spec = self.sweep.spec
        pairs = zip(self.rows["row"], self.rows["calibrator"], strict=True)
        order = spec.calibrator_names
        return looks(sorted(pairs, key=lambda pair: order.index(pair[1])), spec.methods)

    @property
    def files(self) -> str:
        """The prefix of the names of this dataset's figures."""
        return f"figures/{file_name(self.dataset)}"


class Section(NamedTuple):
    """A section: its name, and the function that makes it (empty if there is nothing to show).

    The contents of the page link to ``anchor``; a section without one is made for every dataset
    and placed under the dataset's heading. A ``last`` section is made after all others, from the
    space that they leave.
    """

    name: str
    render: Callable[[ReportContext], Markup]
    anchor: str = ""
    last: bool = False
