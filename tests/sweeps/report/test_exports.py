"""Markdown and LaTeX tables."""

from __future__ import annotations

import re

from sweeps.report.exports import latex, markdown
from tests.sweeps.report.analyses import analysis, compared, oracle, row

HOSTILE = r"50%_of $x & {a|b} #1 \input~^<b>"


def tables() -> tuple[str, str]:
    found = analysis(
        [row(HOSTILE, "temperature", winner=True), row("standard", seeds=3), oracle()],
        compared(HOSTILE, "temperature", nll=("better", 0.004)),
    )
    return markdown(found), latex(found)


def test_markdown_has_intervals_floors_seeds_and_verdicts() -> None:
    lines = tables()[0].splitlines()
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines if line.startswith("|")]
    assert {len(cells) for cells in rows} == {9}
    assert [cell.strip() for cell in rows[0]] == [
        *("", "ECE", "NLL", "Brier", "error", "floor", "NLL vs standard", "seeds", "train s")
    ]
    assert [cell.strip() for cell in rows[2]][1:] == [
        *(r"0.024 \[0.019, 0.031\]", "0.335", "0.190", "0.125", "0.021"),
        *("better (p = 0.004)", "5", "1.50"),
    ]
    assert rows[2][0].strip() == r"50%\_of \$x \& \{a\|b\} \#1 \\input\~^\<b\> + temperature ★"
    assert rows[4][8].strip() == ""  # nobody trained the oracle


def test_latex_is_safe_to_compile() -> None:
    text = tables()[1]
    body = text[text.index(r"\midrule") : text.index(r"\bottomrule")]
    first, second, third = (line for line in body.splitlines()[1:] if line)
    for line in (first, second, third):
        assert line.endswith(r" \\")
        assert len(re.findall(r"(?<!\\)&", line)) == 8
    assert first.startswith(
        r"50\%\_of \$x \& \{a\textbar{}b\} \#1 \textbackslash{}input\textasciitilde{}"
        r"\textasciicircum{}\textless{}b\textgreater{} + temperature $\star$ &"
    )
    for name in ("table", "tabular"):
        assert text.count(f"\\begin{{{name}}}") == text.count(f"\\end{{{name}}}") == 1
    assert text.count("{lrrrrrrrr}") == 1
    plain = re.sub(r"\\.", "", text)
    assert plain.count("{") == plain.count("}")
    # A row that begins with a bracket would be read as an option of the line break before.
    assert not re.search(r"\\\\\s*\[", text)
