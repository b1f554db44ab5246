"""The report of a sweep as one HTML file that needs nothing from the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import pandas as pd

from sweeps.analysis import Analysis
from sweeps.plan import Plan
from sweeps.report.dataset_section import DatasetParts, dataset_parts, pictures_html
from sweeps.report.detail_tables import failures_html
from sweeps.report.document import Room, document, folded, paragraphs, section
from sweeps.report.gather import Gathered
from sweeps.report.glossary import glossary_html
from sweeps.report.headline import Headline, across, headlines
from sweeps.report.images import Picture
from sweeps.report.paper_table import notes, table_rows
from sweeps.report.rank_diagram import rank_diagram
from sweeps.report.wording import TITLES, count


def page(
    plan: Plan,
    analysis: Analysis,
    gathered: Gathered,
    pictures: Sequence[Picture],
    published: pd.DataFrame | None = None,
) -> str:
    """The whole page: headlines, the published table, every dataset, and how it was made.

    It is smaller than ``document.LIMIT``: charts come before pictures, and what does not fit
    is named with the file that has it.
    """
    room = Room()
    said = headlines(plan, analysis)
    top = room.take(_opening(plan, analysis, said))
    ending = room.take(_ending(plan, gathered))
    table = "" if published is None else room.take(_published(plan, published))
    ranks = room.take(_ranks(analysis))
    parts = [dataset_parts(room, plan, analysis, gathered, name) for name in plan.loaded.datasets]
    sections = {"summary": "Summary"} | ({"published": "Published"} if table else {})
    sections |= {"ranks": "Across datasets"} if ranks else {}
    sections |= {part.anchor: part.dataset for part in parts} | {"made": "How it was made"}
    body = top + table + ranks
    body += "".join(_with_pictures(room, part, pictures) for part in parts)
    return document(f"{plan.spec.name} · calsweep", body + ending, sections, room)


def _with_pictures(room: Room, part: DatasetParts, pictures: Sequence[Picture]) -> str:
    mine = [each for each in pictures if each.dataset == part.dataset and each.title]
    return section(part.anchor, part.dataset, part.html + pictures_html(room, mine))


def _opening(plan: Plan, analysis: Analysis, said: Mapping[str, Headline]) -> str:
    spec = plan.spec
    failed = f", <b>{plan.failed}</b> failed" if plan.failed else ", none failed"
    facts = [
        f"<b>{plan.done}</b> of {plan.total} trials done{failed}",
        f"<b>{count(len(spec.methods), 'method')}</b> × {count(len(said), 'dataset')}",
        f"model {escape(spec.model.name)}",
        f"{count(spec.confirm_seeds, 'confirm seed')}",
        f"baseline {escape(analysis.baseline)}",
    ]
    told = [*said.values(), Headline(across(analysis))]
    items = "".join(
        f'<li><p class="say"><b>{escape(each.subject)}</b>'
        f"{escape(each.lead.removeprefix(each.subject))}</p>"
        + (f'<p class="note">{escape(each.others)}</p>' if each.others else "")
        + "</li>"
        for each in told
        if each.lead
    )
    reading = (
        f"Brackets are 95 % intervals over {count(spec.confirm_seeds, 'seed')}"
        if spec.confirm_seeds > 1
        else "Brackets are 95 % bootstrap intervals over test points (there is one seed)"
    )
    note = (
        f"{reading}; p-values are corrected for the number of methods (Holm). Settings, maps and "
        "the chosen row were picked on validation data; test data only reports."
    )
    remarks = paragraphs(plan.loaded.notes)
    if plan.done < plan.total:
        rest = count(plan.total - plan.done, "trial")
        remarks += f'<p class="warn">This sweep is unfinished; still to come: {rest}.</p>'
    return (
        f'<header id="summary"><h1>{escape(spec.name)}</h1>'
        f'<p class="facts">{" · ".join(facts)}</p>{remarks}'
        f'<ul class="overview">{items}</ul><p class="note">{escape(note)}</p>'
        f"{folded('What the words mean', glossary_html(spec.bins))}</header>"
    )


def _published(plan: Plan, lines: pd.DataFrame) -> str:
    """Ours beside the published values, one table per dataset."""
    assert plan.spec.table is not None, "only specs with a table have lines of it"
    pieces = []
    for dataset in plan.loaded.datasets:
        head, *rows = table_rows(lines[lines["dataset"] == dataset], plan.spec.table)
        cells = "".join(f"<th>{escape(text)}</th>" for text in (dataset, *head[1:]))
        body = "\n".join(
            "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows
        )
        pieces.append(
            f'<div class="scroll" tabindex="0"><table class="published"><thead><tr>{cells}</tr>'
            f"</thead><tbody>{body}</tbody></table></div>"
        )
    pieces.append(f'<p class="note">{escape(notes(plan, lines))}</p>')
    return section("published", plan.spec.table.title, "\n".join(pieces))


def _ranks(analysis: Analysis) -> str:
    if not analysis.ranks:
        return ""
    drawn = "".join(
        rank_diagram(metric, ranks) for metric, ranks in analysis.ranks.items() if metric in TITLES
    )
    note = paragraphs(
        ["Every method with the map chosen for it on validation data; rank 1 is the lowest mean."]
    )
    return section("ranks", "Across datasets", note + f'<div class="charts">{drawn}</div>')


def _ending(plan: Plan, gathered: Gathered) -> str:
    spec = plan.spec
    failed = failures_html(gathered)
    seeds = ", ".join(str(spec.seed + 1 + repeat) for repeat in range(min(spec.confirm_seeds, 20)))
    more = "" if spec.confirm_seeds <= 20 else " …"
    data = "".join(
        f"<dt>{escape(name)}</dt><dd><code>{escape(dataset.fingerprint)}</code></dd>"
        for name, dataset in plan.loaded.datasets.items()
    )
    versions = "".join(
        f"<dt>{escape(count(times, 'confirm trial'))}</dt><dd>"
        + escape(", ".join(f"{name} {version}" for name, version in found if version))
        + "</dd>"
        for found, times in gathered.environments.items()
        if found
    )
    again = f"calsweep run {spec.name}.yaml\ncalsweep report {spec.name} --open"
    parts = [
        folded("What failed", failed, opened=True) if failed else "",
        folded(
            "Run it again",
            "<p>Save the specification below under this name, beside its data if it has paths. "
            "Trials that are done are not trained again.</p>"
            f"<pre>{escape(again)}</pre>",
            opened=True,
        ),
        folded("Specification", f"<pre>{escape(plan.loaded.text)}</pre>", opened=True),
        folded(
            "Seeds, data and versions",
            f'<dl class="words"><dt>Seeds</dt><dd>search {spec.seed}; confirm {seeds}{more}</dd>'
            f"{data}{versions}</dl>",
        ),
    ]
    return section("made", "How it was made", "".join(parts))
