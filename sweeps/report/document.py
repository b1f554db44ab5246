"""The frame of a page: one file with its style, script, charts and pictures; no requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from markupsafe import Markup

from sweeps.report.chart import Chart
from sweeps.report.templates import NOTHING, macro, rendered

PAGE_LIMIT = 6_000_000
"""The largest size of a page in bytes: it can be mailed, and opens at once."""
RESERVED = 50_000
"""The part of it reserved for headings, contents and the frame."""
MOST_MISSING = 20
"""Most failures that a page names: they must fit into the reserve."""


class PagePart(NamedTuple):
    """A part of a page: its anchor, its name in the contents, and its HTML."""

    anchor: str
    name: str
    html: Markup


class PageBudget:
    """The space left on a page, and the charts added so far."""

    def __init__(self) -> None:
        self.charts: list[Markup] = []
        empty = document("", "", [PagePart("", "", NOTHING)], self, {})
        self.left = PAGE_LIMIT - RESERVED - len(empty.encode())

    def take(self, content: Markup, otherwise: Markup = NOTHING) -> Markup:
        """``content`` if it fits, else ``otherwise`` if that fits, else nothing."""
        for made in (content, otherwise):
            size = len(made.encode())
            if size <= self.left:
                self.left -= size
                return made
        return NOTHING

    def chart(
        self, chart: Chart, title: str = "", about: str | None = None, instead: str = ""
    ) -> Markup:
        """The placeholder of a chart, whose data is kept; ``title`` and ``about`` replace its own.

        If it does not fit, ``instead`` names the file that shows it.
        """
        name = f"chart-{len(self.charts)}"
        data = macro("chart", "data")(name, Markup(chart.json()))
        caption = chart.about if about is None else about
        place = macro("chart", "place")(name, chart, title or chart.title, caption)
        if self.take(data + place):
            self.charts.append(data)
            return place
        return self.take(macro("chart", "left_out")(chart.title, instead))


def document(
    title: str,
    heading: str,
    parts: Sequence[PagePart],
    room: PageBudget,
    failures: Mapping[str, str],
) -> str:
    """The whole file: the first part opens it under ``heading``; empty parts are omitted.

    ``failures`` lists what could not be made, and why.
    """
    summary, *others = parts
    return rendered(
        "document",
        title=title,
        heading=heading,
        summary=summary,
        parts=[part for part in others if part.html],
        missing=list(failures.items())[:MOST_MISSING],
        further=max(0, len(failures) - MOST_MISSING),
        charts=room.charts,
        style=_asset("style.css"),
        plotly=_plotly(),
        script=_asset("page.js"),
    )


@cache
def _asset(name: str) -> Markup:
    return Markup((files("sweeps.report") / "assets" / name).read_text(encoding="utf-8"))


@cache
def _plotly() -> Markup:
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

    return Markup(get_plotlyjs())
