"""The page's shell: one file with its style, script, charts and pictures; no request is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files

from calibration.text import visible
from sweeps.report.chart import Chart

PAGE_LIMIT = 6_000_000
"""The size of a page in bytes, at most: it can be mailed, and opens at once."""
RESERVED = 50_000
"""Of these, for headings, contents and what else holds the parts together."""
MOST_MISSING = 20
"""Failures that a page names: few enough for what is reserved."""


class PageBudget:
    """What still fits into a page, and the charts it has taken so far."""

    def __init__(self) -> None:
        self.charts: dict[str, str] = {}
        self.left = PAGE_LIMIT - RESERVED - len(document("", "", {}, self).encode())

    def take(self, content: str, otherwise: str = "") -> str:
        """``content`` if it fits, or else what is put in its place if that does, or nothing."""
        for made in map(visible, (content, otherwise)):
            size = len(made.encode())
            if size <= self.left:
                self.left -= size
                return made
        return ""

    def chart(self, chart: Chart, heading: str = "", instead: str = "") -> str:
        """The place of a chart, whose data are kept; ``heading`` takes the title's (HTML).

        Where it does not fit, ``instead`` names the file that shows it.
        """
        name = f"chart-{len(self.charts)}"
        data = f'<script type="application/json" id="{name}-data">{chart.json()}</script>\n'
        caption = heading or f"<b>{escape(chart.title)}</b> {escape(chart.about)}"
        place = (
            f'<figure class="{"panel" if chart.small else "chart"}">'
            f"<figcaption>{caption}</figcaption>"
            f'<div class="plot" id="{name}" role="img" aria-label="{escape(chart.about)}" '
            f'style="height:{chart.height}px"></div></figure>'
        )
        if self.take(data + place):
            self.charts[name] = data
            return place
        note = f"left out to keep the page small{f'; see {instead}' if instead else ''}"
        return self.take(f'<p class="note">{escape(f"{chart.title}: {note}.")}</p>')


def document(title: str, body: str, sections: Mapping[str, str], room: PageBudget) -> str:
    """The whole file: ``sections`` maps the anchors of the contents to their names."""
    links = "".join(
        f'<a href="#{escape(anchor)}">{escape(name)}</a>' for anchor, name in sections.items()
    )
    title, links, body = map(visible, (title, links, body))
    charts = "".join(room.charts.values())
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{escape(title)}</title><style>{_asset("style.css")}</style></head><body>
<nav aria-label="Contents"><div>{links}</div></nav>
<main>{body}</main>
<noscript><p>Without JavaScript the tables are complete, but charts are not drawn.</p></noscript>
{charts}<script>{_plotly()}</script>
<script>{_asset("page.js")}</script>
</body></html>
"""


def section(anchor: str, heading: str, content: str) -> str:
    """A section with its heading, to be reached from the contents."""
    return f'<section id="{escape(anchor)}"><h2>{escape(heading)}</h2>{content}</section>'


def folded(summary: str, content: str, *, opened: bool = False) -> str:
    """Content that opens on a click."""
    state = " open" if opened else ""
    return f"<details{state}><summary>{escape(summary)}</summary>{content}</details>"


def paragraphs(lines: Sequence[str]) -> str:
    """Plain texts, each a paragraph."""
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def missing_html(failures: Mapping[str, str]) -> str:
    """What could not be made of a report, and why; nothing if all was."""
    if not failures:
        return ""
    items = [
        f'<li class="warn"><b>{escape(name)}</b>: {escape(reason)}</li>'
        for name, reason in list(failures.items())[:MOST_MISSING]
    ]
    left = len(failures) - len(items)
    items += [f"<li>… and {left} more</li>"] if left else []
    return section("missing", "What could not be made", f"<ul>{''.join(items)}</ul>")


@cache
def _asset(name: str) -> str:
    return (files("sweeps.report") / "assets" / name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

    return str(get_plotlyjs())
