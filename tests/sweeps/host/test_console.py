"""Paragraphs on a screen break between words; anywhere else they are one line."""

from __future__ import annotations

import io

import pytest

from sweeps.host.console import Terminal, say_paragraph

WORDS = "On blobs-1.7, use [red] early stopping + temperature (lr 0.0113): its mean test NLL \x1b."


@pytest.mark.parametrize("screen", [True, False])
def test_a_paragraph_breaks_between_words_on_a_screen_only(screen: bool) -> None:
    file = io.StringIO()
    say_paragraph(Terminal(file=file, width=40, force_terminal=screen), WORDS)
    lines = [line.rstrip() for line in file.getvalue().splitlines()]
    assert lines[-1] == ""
    assert " ".join(lines[:-1]) == WORDS.replace("\x1b", "\\x1b")
    assert (max(map(len, lines)) <= 40) == screen
