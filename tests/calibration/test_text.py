"""Text of others, made visible."""

from __future__ import annotations

import sys
import unicodedata

from calibration.text import visible


def test_nothing_that_stays_controls_anything() -> None:
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    shown = visible(every, keep="")
    kinds = {unicodedata.category(each) for each in shown}
    assert kinds.isdisjoint({"Cc", "Cs", "Zl", "Zp"})
    turning = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    assert turning.isdisjoint(map(unicodedata.bidirectional, shown))
    shown.encode()


def test_what_is_hidden_is_escaped_and_the_rest_stays() -> None:
    assert visible("a\x1b[31mb\x7f\x85\u202ec\ud800\x00") == r"a\x1b[31mb\x7f\x85\u202ec\ud800\x00"
    plain = "γ ± é 日本 👩‍👩‍👧 $x$ <b> \\n"
    assert visible(plain) == plain


def test_lines_and_tabs_stay_where_they_are_ours() -> None:
    assert visible("a\n\tb\r") == "a\n\tb\\r"
    assert visible("a\n\tb", keep="") == r"a\n\tb"
