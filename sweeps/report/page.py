"""The report as one HTML file that needs nothing from the network."""

from __future__ import annotations

import base64
from html import escape

import pandas as pd

from sweeps.plan import Plan
from sweeps.report.paper_table import notes, table_rows
from sweeps.report.results import label
from sweeps.report.terminal import number, spread
from sweeps.spec import ORACLE

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
th, td { padding: .25rem .75rem; text-align: right; border-bottom: 1px solid #8884; }
td { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.winner { font-weight: bold; } .oracle { opacity: .65; }
img { max-width: 100%; background: white; border-radius: .5rem; margin: .5rem 0; }
pre { overflow-x: auto; padding: 1rem; border: 1px solid #8884; border-radius: .5rem; }
small { opacity: .75; }
"""
METRICS = ("ece", "mce", "ace", "classwise_ece", "smooth_ece", "nll", "brier", "error")


def page(
    plan: Plan,
    table: pd.DataFrame,
    images: dict[str, bytes],
    published: pd.DataFrame | None = None,
) -> str:
    """The whole page: the published table, per dataset the leaderboard and figures, the spec."""
    sections = "" if published is None else _published(plan, published)
    sections += "\n".join(_section(plan, table, images, name) for name in plan.loaded.datasets)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>calsweep: {escape(plan.spec.name)}</title><style>{STYLE}</style></head><body>
<h1>{escape(plan.spec.name)}</h1>
<p>{plan.done} trials, {plan.failed} failed; model {escape(plan.spec.model.name)};
{plan.spec.confirm_seeds} confirm seeds. Rows are ordered by cross-fitted validation NLL and ★
marks the first; test data took no part in any choice. Values are mean ± standard deviation
over seeds; “floor” is the ECE that the row's confidences would show by chance if they were
calibrated ({plan.spec.bins} bins).</p>
{sections}
<h2>Specification</h2><pre>{escape(plan.loaded.text)}</pre>
</body></html>
"""


def _published(plan: Plan, lines: pd.DataFrame) -> str:
    """Ours beside the published values, one table per dataset."""
    assert plan.spec.table is not None, "only specs with a table have lines of it"
    pieces = [f"<h2>{escape(plan.spec.table.title)}</h2>"]
    for dataset in plan.loaded.datasets:
        head, *rows = table_rows(lines[lines["dataset"] == dataset], plan.spec.table)
        cells = "".join(f"<th>{escape(text)}</th>" for text in (dataset, *head[1:]))
        body = "\n".join(
            "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows
        )
        pieces.append(
            f'<div class="scroll"><table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody>'
            "</table></div>"
        )
    return "\n".join([*pieces, f"<p><small>{escape(notes(plan, lines))}</small></p>"])


def _section(plan: Plan, table: pd.DataFrame, images: dict[str, bytes], dataset: str) -> str:
    rows = table if table.empty else table[table["dataset"] == dataset]
    if rows.empty:
        return f"<h2>{escape(dataset)}</h2><p>No confirmed trial.</p>"
    shown = [m for m in METRICS if m in rows]
    head = "".join(f"<th>{escape(m)}</th>" for m in (*shown, "floor", "train s"))
    body = "\n".join(_row(row, shown) for _, row in rows.iterrows())
    pictures = "\n".join(
        f'<img alt="{escape(name)}" src="data:image/png;base64,{base64.b64encode(image).decode()}">'
        for name, image in images.items()
        if name.rpartition("_")[0] == dataset
    )
    return (
        f'<h2>{escape(dataset)}</h2><div class="scroll"><table><thead><tr><th></th>{head}</tr>'
        f"</thead><tbody>{body}</tbody></table></div>{pictures}"
    )


def _row(row: pd.Series, shown: list[str]) -> str:
    kind = "winner" if row["winner"] else "oracle" if row["method"] == ORACLE else ""
    name = escape(label(row["method"], row["post_hoc"])) + (" ★" if row["winner"] else "")
    cells = "".join(f"<td>{spread(row[m], row[f'{m}_sd'])}</td>" for m in shown)
    cost = "" if row["method"] == ORACLE else number(row["train_seconds"], 2)
    return (
        f'<tr class="{kind}"><td>{name}</td>{cells}<td>{number(row["floor"])}</td>'
        f"<td>{cost}</td></tr>"
    )
