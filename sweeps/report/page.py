"""The report of a sweep as one HTML file that needs nothing from the network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html import escape

import pandas as pd

from sweeps.analysis import Analysis
from sweeps.engine.plan import Plan
from sweeps.report.attempts import Attempts
from sweeps.report.dataset_section import DatasetParts, dataset_parts, pictures_html
from sweeps.report.detail_tables import failures_html
from sweeps.report.document import PageBudget, document, folded, missing_html, paragraphs, section
from sweeps.report.gather import Gathered
from sweeps.report.glossary import glossary_html
from sweeps.report.headline import Headline, across, headlines, outdated
from sweeps.report.images import Picture
from sweeps.report.paper_table import notes, table_rows
from sweeps.report.rank_diagram import rank_diagram
from sweeps.report.wording import count


def page(
    plan: Plan,
    analysis: Analysis,
    gathered: Gathered,
    pictures: Sequence[Picture],
    published: pd.DataFrame | None,
    attempts: Attempts,
) -> str:
    """The whole page: headlines, the published table, every dataset, and how it was made.

    It is smaller than ``document.PAGE_LIMIT``: charts come before pictures, and what does not fit
    is named with the file that has it. So is what failed, here or earlier in ``attempts``.
    """
    room = PageBudget()

    def part(name: str, make: Callable[[], str], otherwise: str = "") -> str:
        return room.take(attempts.part(f"the section {name!r}", make, otherwise))

    top = part(
        "Summary",
        lambda: _opening(plan, analysis, headlines(plan, analysis)),
        f'<header id="summary"><h1>{escape(plan.spec.name)}</h1></header>',
    )
    ending = part("How it was made", lambda: _ending(plan, gathered))
    table = "" if published is None else part("Published", lambda: _published(plan, published))
    ranks = part("Across datasets", lambda: _ranks(analysis))
    parts = [
        dataset_parts(room, plan, analysis, gathered, name, attempts)
        for name in plan.loaded.datasets
    ]
    shown = "".join(_with_pictures(room, part, pictures, attempts) for part in parts)
    missing = missing_html(attempts.failures)
    sections = {"summary": "Summary"} | ({"missing": "Missing"} if missing else {})
    sections |= {"published": "Published"} if table else {}
    sections |= {"ranks": "Across datasets"} if ranks else {}
    sections |= {part.anchor: part.dataset for part in parts}
    sections |= {"made": "How it was made"} if ending else {}
    body = top + missing + table + ranks + shown + ending
    return document(f"{plan.spec.name} · calsweep", body, sections, room)


def _with_pictures(
    room: PageBudget, part: DatasetParts, pictures: Sequence[Picture], attempts: Attempts
) -> str:
    mine = [each for each in pictures if each.dataset == part.dataset and each.title]
    shown = attempts.part(f"the pictures of {part.dataset}", partial(pictures_html, room, mine), "")
    return section(part.anchor, part.dataset, part.html + shown)


def _opening(plan: Plan, analysis: Analysis, said: Mapping[str, Headline]) -> str:
    spec = plan.spec
    failed = f", <b>{plan.failed}</b> failed" if plan.failed else ", none failed"
    facts = [
        f"<b>{plan.done}</b> of {plan.total} trials done{failed}",
        f"<b>{count(len(spec.methods), 'row')}</b> × {count(len(said), 'dataset')}",
        f"model {escape(spec.model.name)}",
        f"{count(spec.confirm_seeds, 'confirm seed')}",
        f"baseline {escape(analysis.baseline.about)}",
    ]
    told = [*said.values(), Headline(across(analysis)), Headline(outdated(plan, analysis))]
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
        f"{reading}; p-values are corrected for all methods and metrics that one dataset’s "
        "sentences speak of (Holm). Settings, calibrators and "
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
    drawn = "".join(rank_diagram(metric, ranks) for metric, ranks in analysis.ranks.items())
    note = paragraphs(
        ["Every row with its calibrator, chosen on validation data; rank 1 is the lowest mean."]
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
