"""The sections of the report in the order of the page, one module each.

A new section is a module with a ``section``, and its place in this list.
"""

from sweeps.report.sections import (
    bins,
    classes,
    facts,
    leaderboard,
    pictures,
    provenance,
    published,
    ranks,
    reliability,
    summary,
    tables,
    trade_offs,
    training,
)

SECTIONS = (
    summary.section,
    published.section,
    ranks.section,
    facts.section,
    leaderboard.section,
    reliability.section,
    classes.section,
    trade_offs.section,
    bins.section,
    training.section,
    tables.section,
    pictures.section,
    provenance.section,
)
"""The first opens the page; those about a dataset are grouped where the first of them is."""
