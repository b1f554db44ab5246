"""Text in Markdown and LaTeX: whatever it holds is shown as it is, never taken for markup.

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
    # What pdflatex's fonts do not have under these characters.
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
    """``text`` in a line or a table's cell of Markdown."""
    return "".join(f"\\{c}" if c in MARKDOWN_SPECIAL else c for c in _line(text))


def markdown_code(text: str) -> str:
    """``text`` as code in a table's cell of Markdown; a backtick of its own would end it."""
    inside = _line(text).replace("|", r"\|").replace("`", "'")
    return f"`{inside or ' '}`"


def latex_text(text: str) -> str:
    """``text`` in a line of LaTeX."""
    return "".join(LATEX_SPECIAL.get(c, c) for c in _line(text))


def _line(text: str) -> str:
    """In one line: a line break would end a cell or a paragraph."""
    return visible(" ".join(text.split()), keep="")
