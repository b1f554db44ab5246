"""What a section of the report is, and what it is made from."""

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
    """What a section is made from; ``dataset`` is the one it is about, if it is about one.

    What a section adds to the page beside a heading, it takes from ``room``.
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
        """The predictions that are drawn of this dataset."""
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
        """What the names of this dataset's figures begin with."""
        return f"figures/{file_name(self.dataset)}"


class Section(NamedTuple):
    """A section: its name, and what makes it, empty where there is nothing to show.

    The contents of the page lead to ``anchor``; a section without one is made for every dataset
    and stands under the dataset's heading. One that is ``last`` is made after all others, of the
    room that they leave.
    """

    name: str
    render: Callable[[ReportContext], Markup]
    anchor: str = ""
    last: bool = False
