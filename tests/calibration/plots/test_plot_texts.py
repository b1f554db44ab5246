"""Names in figures: drawn as they are written, whatever they hold."""

from __future__ import annotations

import io
import warnings
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from calibration import plots

NAMES = [
    r"a$\frac{$",
    "lr $5 to $6_",
    "_underscore",
    "x\ud800y",
    "a\x1b[31m\u202eb\x00",
    "日本😀",
    "y" * 10_000,
]
SHOWN = [*NAMES[:3], r"x\ud800y", r"a\x1b[31m\u202eb\x00", NAMES[5]]


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)]


def pairs(count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    draws = np.random.default_rng(0)
    confidence = draws.uniform(0.5, 1, count)
    return confidence, draws.uniform(size=count) < confidence


@pytest.mark.parametrize(
    "draw", [plots.bin_robustness, plots.risk_coverage, plots.reliability_grid]
)
def test_any_name_is_drawn_as_it_is(draw: object) -> None:
    assert callable(draw)
    figure = draw({name: pairs() for name in NAMES}, title=NAMES[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # also about characters that the font lacks
        picture = plots.png(figure)
    assert picture.startswith(b"\x89PNG")
    drawn = texts(figure)
    assert drawn.count(NAMES[0]) >= 1
    for name in SHOWN:
        assert any(text.startswith(name) for text in drawn), name
    assert max(map(len, drawn)) <= 300


def test_curves_and_their_axis_are_text_in_svg_too() -> None:
    figure = plots.curves({name: [(1, 2.0), (2, 1.0)] for name in NAMES}, r"γ $\frac{$")
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        figure.savefig(buffer, format="svg")
    ET.fromstring(buffer.getvalue())
    (legend,) = figure.legends
    assert [entry.get_text() for entry in legend.get_texts()][: len(SHOWN)] == SHOWN
    assert figure.axes[0].get_ylabel() == r"γ $\frac{$"


def test_one_long_name_does_not_push_others_out_of_the_legend() -> None:
    figure = plots.curves({name: [(1, 2.0), (2, 1.0)] for name in ("a", "e" * 500)}, "loss")
    plots.png(figure)
    (legend,) = figure.legends
    box, whole = legend.get_window_extent(), figure.bbox
    assert whole.x0 <= box.x0 < box.x1 <= whole.x1


def test_what_follows_a_long_name_is_not_cut_off() -> None:
    figure = plots.risk_coverage({"n" * 500: pairs()})
    (entry,) = figure.legends[0].get_texts()
    assert entry.get_text().startswith("nnn")
    assert "(AURC 0." in entry.get_text()
