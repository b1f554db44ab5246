"""The look of every figure: colours, sizes, and common parts of figures and legends.

Colours are those of Okabe & Ito (2008), distinguishable with any common colour vision; lines
also differ in dash and marker, so that figures stay readable in greyscale. Names are drawn
literally: no text is parsed as mathematics or anything else.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypedDict

import matplotlib.style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from calibration.text import visible

P = ParamSpec("P")

INK = "#222222"
MUTED = "#767676"
PALE = "#C3D7EA"
OVER_CONFIDENT = "#D55E00"
UNDER_CONFIDENT = "#0072B2"

# Yellow is left out: too faint for a line on white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("-", "--", "-.", ":")
_LONGEST_TEXT = 300
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")

_RC: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.labelsize": 10,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "figure.dpi": 100,
    "figure.titlesize": 12,
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.8,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "savefig.dpi": 100,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": INK,
    "xtick.labelsize": 9,
    "ytick.color": INK,
    "ytick.labelsize": 9,
}


class LineStyle(TypedDict):
    """Keyword arguments of ``Axes.plot`` that distinguish one line from another."""

    color: str
    linestyle: str
    marker: str


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Decorate a drawing function to use our settings, whatever the user's matplotlibrc says.

    Every text of the figure is made visible, and text that is too long for any figure shortened.
    """

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with matplotlib.style.context(_RC, after_reset=True):
            figure = draw(*args, **kwargs)
            for text in figure.findobj(Text):
                assert isinstance(text, Text), "this is what was looked for"
                text.set_text(fitting(text.get_text(), _LONGEST_TEXT))
        return figure

    return drawn


def png(figure: Figure, dpi: float = 100) -> bytes:
    """The figure as a PNG file; a character missing in the font is a box, without a warning."""
    buffer = io.BytesIO()
    figure.set_dpi(dpi)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        # ``Figure.savefig`` would compute the layout and draw twice.
        FigureCanvasAgg(figure).print_png(buffer)
    return buffer.getvalue()


def new_figure(width: float, height: float, title: str | None = None) -> Figure:
    """An empty figure, sized in inches, independent of pyplot's state."""
    figure = Figure(figsize=(width, height), layout="constrained")
    if title:
        figure.suptitle(title)
    return figure


def fitting(text: str, most: int) -> str:
    """``text`` made visible, and shortened in the middle to at most ``most`` characters."""
    shown = visible(text)
    if len(shown) <= most:
        return shown
    end = min(20, most // 3)
    return f"{shown[: most - end - 1]}…{shown[-end:]}"


def line_styles(names: Iterable[str]) -> dict[str, LineStyle]:
    """A style per name; after seven, colours repeat with other dashes and markers."""
    styles: dict[str, LineStyle] = {}
    for index, name in enumerate(names):
        turn = index // len(_COLOURS)
        styles[name] = {
            "color": _COLOURS[index % len(_COLOURS)],
            "linestyle": _DASHES[turn % len(_DASHES)],
            "marker": _MARKERS[(index + turn) % len(_MARKERS)],
        }
    return styles


def legend_below(figure: Figure, handles: Mapping[str, Artist]) -> None:
    """Put a legend below the axes and make the figure taller accordingly.

    It has as many columns as its longest entry allows; no entry is wider than the figure.
    """
    width = figure.get_figwidth()
    labels = [fitting(label, int((width - 0.55) / 0.08)) for label in handles]
    longest = max(map(len, labels))
    most = max(1, int(width / (0.55 + 0.075 * longest)))
    rows = math.ceil(len(handles) / most)
    # Spread evenly: six entries in five columns would leave one alone in its row.
    columns = math.ceil(len(handles) / rows)
    figure.set_figheight(figure.get_figheight() + 0.2 * rows + 0.15)
    numbers = [str(number) for number in range(len(labels))]
    legend = figure.legend(
        list(handles.values()), numbers, loc="outside lower center", ncols=columns
    )
    # Passed as labels, names that begin with an underscore would be omitted.
    for entry, label in zip(legend.get_texts(), labels, strict=True):
        entry.set_text(label)


def unit_axis(axes: Axes, which: str) -> None:
    """Fix an axis of probabilities to [0, 1] with ticks every 0.2."""
    ticks = [0, 0.2, 0.4, 0.6, 0.8, 1]
    if which == "x":
        axes.set_xlim(0, 1)
        axes.set_xticks(ticks)
    else:
        axes.set_ylim(0, 1)
        axes.set_yticks(ticks)


def check_named(named: Mapping[str, object], what: str) -> None:
    """Raise ``ValueError`` if there is nothing to draw."""
    if not named:
        raise ValueError(f"named is empty; give at least one name with {what}")
