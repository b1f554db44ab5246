"""Untrusted text (names of rows, datasets, classes and files, reasons) made safe to display;
and counts with their nouns."""

from __future__ import annotations

import re

# Control characters, marks and overrides of the writing direction, line separators, lone
# surrogates (which cannot be encoded), and what XML forbids. Other format characters stay: they
# join emoji and the letters of many scripts.
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def visible(text: str, keep: str = "\n\t") -> str:
    r"""Show control characters, direction overrides and lone surrogates as escapes: ``\x1b``.

    Nothing that remains can move a terminal's cursor, reorder a line, break an XML file or be
    rejected by UTF-8. ``keep`` lists the control characters that stay: ``""`` for a name, which
    is a single line.
    """

    def shown(found: re.Match[str]) -> str:
        character = found[0]
        if character in keep:
            return character
        return character.encode("unicode_escape").decode("ascii")

    return _HIDDEN.sub(shown, text)


def count(number: int, noun: str) -> str:
    """``1 seed``, ``5 seeds``, ``10,000 test points``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
