"""Escape text for Markdown and LaTeX: it is shown verbatim, never interpreted as markup.

Pages have ``templates``, charts have ``chart.words``, CSV has ``csv_table``; control characters
are made visible everywhere by ``calibration.text.visible``.
"""

from __future__ import annotations

from calibration.text import visible

MARKDOWN_SPECIAL = r"\`*_{}[]<>|#&~$!"
LATEX_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    # Characters that pdflatex's fonts do not have.
    "★": r"$\star$",
    "†": r"$\dagger$",
    "∞": r"$\infty$",
    "–": "--",
    "×": r"$\times$",
    "γ": r"$\gamma$",
    "·": r"$\cdot$",
    "[": "{[}",
    "]": "{]}",
}


def markdown_text(text: str) -> str:
    """``text`` in a line or table cell of Markdown."""
    return "".join(f"\\{c}" if c in MARKDOWN_SPECIAL else c for c in _line(text))


def markdown_code(text: str) -> str:
    """``text`` as code in a Markdown table cell; a backtick in it would end the code."""
    inside = _line(text).replace("|", r"\|").replace("`", "'")
    return f"`{inside or ' '}`"


def latex_text(text: str) -> str:
    """``text`` in a line of LaTeX."""
    return "".join(LATEX_SPECIAL.get(c, c) for c in _line(text))


def _line(text: str) -> str:
    """The text in one line: a line break would end a cell or a paragraph."""
    return visible(" ".join(text.split()), keep="")
