"""The page of stored predictions: calibrators beside each other, nothing trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import pandas as pd
from torch import Tensor

from sweeps.analysis.results import label
from sweeps.report.attempts import Attempts
from sweeps.report.chart import looks
from sweeps.report.dataset_section import leaderboard_tools, reliability_html, rows_html
from sweeps.report.document import PageBudget, document, folded, missing_html, paragraphs, section
from sweeps.report.glossary import glossary_html
from sweeps.report.leaderboard_table import RowVerdict, leaderboard_html

_NOTE = (
    "Lines are 95 % bootstrap intervals over test points; the tick in ECE is what chance would "
    "give if the row were calibrated; ★ is the row to use. Press a heading to sort."
)


def posthoc_page(
    title: str,
    tidy: pd.DataFrame,
    leaderboard: pd.DataFrame,
    shown: Mapping[str, tuple[Tensor, Tensor]],
    verdicts: Mapping[str, str],
    notes: Sequence[str],
    bins: int,
) -> str:
    """One HTML file on the calibrators that were tried on somebody's predictions.

    ``leaderboard`` has a row per calibrator, best first, as a sweep's has; ``tidy`` the same with
    bootstrap intervals (METRIC_low, METRIC_high), used where the leaderboard has none of its
    own. ``shown`` holds (confidence, correct) by the row's name, ``verdicts`` words on a row
    against the predictions as they are, ``notes`` sentences for the top of the page. A table
    or chart that cannot be made is logged and named; the others are there.
    """
    room, attempts = PageBudget(), Attempts()
    rows = _with_intervals(leaderboard, tidy)
    names = {label(m, p): (m, p) for m, p in zip(rows["row"], rows["calibrator"], strict=True)}
    found = {
        (*names[name], "ece"): RowVerdict(words)
        for name, words in verdicts.items()
        if name in names
    }
    top = room.take(
        f'<header id="summary"><h1>{escape(title)}</h1>'
        f'<div class="say">{paragraphs(notes)}</div>'
        f"{folded('What the words mean', glossary_html(bins))}</header>"
    )

    def table() -> str:
        made = leaderboard_html(title, rows, rows, found, "no calibrator", int(rows["seeds"].max()))
        tools = leaderboard_tools(len(rows), len(rows))
        return room.take(f'{tools}{made}<p class="note">{escape(_NOTE)}</p>')

    # There is one method: here the calibrators have the colours.
    styles = looks(((name, "identity") for name in names), names)
    named = {name: styles[name, "identity"] for name in shown}
    leading = attempts.part("the leaderboard of the page", table, "")
    diagrams = attempts.part(
        "the reliability diagrams",
        lambda: reliability_html(room, shown, bins, "", "figures/predictions"),
        "",
    )
    diagrams += attempts.part(
        "the charts of bins and abstention", lambda: rows_html(room, shown, named, "figures"), ""
    )
    missing = missing_html(attempts.failures)
    body = missing + section("leaderboard", "Leaderboard", leading)
    body += section("diagrams", "Diagrams", diagrams)
    sections = {"summary": "Summary"} | ({"missing": "Missing"} if missing else {})
    sections |= {"leaderboard": "Leaderboard", "diagrams": "Diagrams"}
    return document(f"{title} · calsweep", top + body, sections, room)


def _with_intervals(leaderboard: pd.DataFrame, tidy: pd.DataFrame) -> pd.DataFrame:
    """The bootstrap's intervals under the names that a sweep's leaderboard has for them."""
    rows = leaderboard.reset_index(drop=True).copy()
    keys = ["dataset", "row", "calibrator"]
    once = tidy.drop_duplicates(keys).set_index(keys)
    index = pd.MultiIndex.from_frame(rows[keys])
    for end in ("low", "high"):
        for column in [c for c in tidy if str(c).endswith(f"_{end}")]:
            name = f"{str(column).removesuffix(f'_{end}')}_ci_{end}"
            if name not in rows:
                rows[name] = once[column].reindex(index).to_numpy()
    return rows
