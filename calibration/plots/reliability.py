"""Reliability diagrams and confidence histograms (Guo et al. 2017; Sanguin et al. 2024, Fig. 2).

Everything is on the probability scale, [0, 1] on both axes, so that any two diagrams can
be compared side by side.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from torch import Tensor

from calibration import metrics
from calibration.metrics.checks import Data, check_pairs
from calibration.plots import style
from calibration.plots.bands import group_effects, noise_band, wilson_interval

_Floats = NDArray[np.float64]

# Beyond this, numbers above the bars would overlap.
_MOST_LABELLED_BINS = 30
_COLUMNS = 4
_BAND_ALPHA = 0.3


@dataclass(frozen=True)
class _Cell:
    """The content of one diagram; arrays hold only the non-empty bins.

    ``effect`` is the factor by which groups raise the variance of a bin's accuracy.
    """

    left: _Floats
    width: float
    count: _Floats
    confidence: _Floats
    accuracy: _Floats
    effect: _Floats
    samples: int
    mean_confidence: float
    mean_accuracy: float

    @property
    def share(self) -> _Floats:
        return self.count / self.samples


@style.styled
def reliability_diagram(
    confidence: Data,
    correct: Data,
    *,
    bins: int = 15,
    groups: Tensor | None = None,
    title: str | None = None,
) -> Figure:
    """Accuracy against confidence in equal-width bins, over the histogram of confidence.

    Each bar is a bin's accuracy; the coloured part is its gap to the bin's mean confidence.
    Lines are 95 % Wilson intervals of the accuracy; the grey band is where it would be in
    95 % of draws if the model were calibrated, the quantiles of Binomial(n_m, conf_m) / n_m
    (Bröcker & Smith 2007). ECE is shown with its noise floor. The histogram below shows the
    counts (up to 30 bins) and, dashed, mean accuracy and mean confidence. Errors of samples in
    one of the ``groups`` (N) are correlated: intervals, band and floor then refer to new groups.

    Raises ``ValueError`` for malformed input, as the metrics do.
    """
    figure = style.new_figure(6, 6, title)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3.4, 1))
    cell = _cell(confidence, correct, bins, groups)
    _draw_diagram(upper, cell)
    upper.set_title(_verdict(confidence, correct, bins, groups), loc="left")
    upper.set_title(f"n = {cell.samples:,}, {bins} bins", loc="right", color=style.MUTED)
    upper.set_ylabel("accuracy")
    _draw_histogram(lower, cell, cell.share.max(), columns=1)
    lower.set_ylabel("share of samples")
    lower.set_xlabel("confidence")
    style.legend_below(figure, _legend())
    return figure


@style.styled
def reliability_grid(
    named: Mapping[str, tuple[Data, Data]],
    *,
    bins: int = 15,
    groups: Mapping[str, Tensor | None] | None = None,
    title: str | None = None,
) -> Figure:
    """One reliability diagram per name's (confidence, correct), side by side on one scale.

    ``groups`` are those of a name's samples, if any. Raises ``ValueError`` if ``named`` is
    empty or any input is malformed.
    """
    style.check_named(named, "(confidence, correct)")
    rows = math.ceil(len(named) / _COLUMNS)
    columns = math.ceil(len(named) / rows)
    figure = style.new_figure(max(2.7 * columns, 5), 4.3 * rows + 0.2, title)
    grid = figure.subplots(
        2 * rows, columns, squeeze=False, sharex=True, height_ratios=(3, 1.15) * rows
    )
    for axes in grid.flat:
        axes.set_visible(False)
    known = groups or {}
    cells = {name: _cell(*pair, bins, known.get(name)) for name, pair in named.items()}
    top = max(cell.share.max() for cell in cells.values())
    for index, (name, cell) in enumerate(cells.items()):
        row, column = divmod(index, columns)
        upper, lower = grid[2 * row, column], grid[2 * row + 1, column]
        _draw_diagram(upper, cell)
        lines = textwrap.fill(style.fitting(name, 4 * 26), 26)
        verdict = _verdict(*named[name], bins, known.get(name))
        upper.set_title(f"{lines}\n{verdict}", loc="left")
        _draw_histogram(lower, cell, top, columns=columns)
        for axes in (upper, lower):
            axes.set_visible(True)
            axes.tick_params(labelleft=column == 0)
        lower.tick_params(labelbottom=True)
        lower.set_xlabel("confidence")
        if column == 0:
            upper.set_ylabel("accuracy")
            lower.set_ylabel("share")
    style.legend_below(figure, _legend())
    return figure


@style.styled
def reliability_by_bins(
    named: Mapping[str, tuple[Data, Data]],
    *,
    bins: Sequence[int] = (20, 50, 100),
    groups: Mapping[str, Tensor | None] | None = None,
    title: str | None = None,
) -> Figure:
    """Each name's (confidence, correct) as reliability diagrams with more and more bins.

    One row per name, one column per number of bins ("Towards Unbiased Calibration using
    Meta-Regularization", Fig. 4). ``groups`` are those of a name's samples, if any.
    Raises ``ValueError`` if ``named`` or ``bins`` is empty or any input is malformed.
    """
    style.check_named(named, "(confidence, correct)")
    if not bins:
        raise ValueError("bins must name at least one number of bins")
    figure = style.new_figure(3.2 * len(bins), 2.9 * len(named) + 0.4, title)
    grid = figure.subplots(len(named), len(bins), squeeze=False, sharex=True, sharey=True)
    for line, (name, pair) in zip(grid, named.items(), strict=True):
        of_name = (groups or {}).get(name)
        for axes, number in zip(line, bins, strict=True):
            _draw_diagram(axes, _cell(*pair, number, of_name))
            heading = style.fitting(name, 30) if axes is line[0] else ""
            verdict = _verdict(*pair, number, of_name)
            axes.set_title(f"{heading}\n{number} bins: {verdict}", loc="left")
        line[0].set_ylabel("accuracy")
    for axes in grid[-1]:
        axes.set_xlabel("confidence")
    style.legend_below(figure, _legend())
    return figure


@style.styled
def confidence_histogram(
    confidence: Data, correct: Data, *, bins: int = 15, title: str | None = None
) -> Figure:
    """Share of samples per equal-width bin of confidence.

    Dashed lines mark mean accuracy and mean confidence; for a calibrated model they coincide.
    Raises ``ValueError`` for malformed input.
    """
    figure = style.new_figure(6, 3.4, title)
    axes = figure.subplots()
    cell = _cell(confidence, correct, bins)
    _draw_histogram(axes, cell, cell.share.max(), columns=1)
    axes.set_xlabel("confidence")
    axes.set_ylabel("share of samples")
    return figure


def _cell(confidence: Data, correct: Data, bins: int, groups: Tensor | None = None) -> _Cell:
    checked, hits = check_pairs(confidence, correct)
    if checked.ndim != 1:
        raise ValueError(
            f"confidence must have shape (N,) to be drawn, found {tuple(checked.shape)}"
        )
    curve = metrics.reliability_curve(checked, hits, bins=bins)
    full = curve.count > 0
    return _Cell(
        left=curve.edges[:-1][full].cpu().numpy(),
        width=1 / bins,
        count=curve.count[full].cpu().numpy(),
        confidence=curve.confidence[full].cpu().numpy(),
        accuracy=curve.accuracy[full].cpu().numpy(),
        effect=group_effects(checked, hits, groups, bins)[full.cpu().numpy()],
        samples=len(checked),
        mean_confidence=float(checked.double().mean()),
        mean_accuracy=float(hits.double().mean()),
    )


def _verdict(confidence: Data, correct: Data, bins: int, groups: Tensor | None = None) -> str:
    error = float(metrics.ece(confidence, correct, bins=bins))
    hits = check_pairs(confidence, correct)[1]
    floor = metrics.noise_floor(confidence, bins=bins, correct=hits, groups=groups)
    return f"ECE {error:.3f}, noise floor {floor.mean:.3f}"


def _draw_diagram(axes: Axes, cell: _Cell) -> None:
    centre = cell.left + cell.width / 2
    stroke = 1.2 * min(1, 25 * cell.width)
    low, high = wilson_interval(cell.accuracy * cell.count, cell.count, cell.effect)
    band_low, band_high = noise_band(cell.confidence, cell.count, cell.effect)
    axes.bar(
        centre,
        cell.accuracy,
        cell.width,
        color=style.PALE,
        edgecolor="white",
        linewidth=stroke,
        label="_bars",
    )
    axes.bar(
        centre,
        band_high - band_low,
        cell.width,
        bottom=band_low,
        color=style.MUTED,
        alpha=_BAND_ALPHA,
        linewidth=0,
        label="_band",
    )
    right = cell.left + cell.width
    axes.hlines(cell.accuracy, cell.left, right, color=style.MUTED, linewidth=stroke)
    over = cell.confidence > cell.accuracy
    axes.bar(
        centre,
        np.abs(cell.confidence - cell.accuracy),
        0.5 * cell.width,
        bottom=np.minimum(cell.confidence, cell.accuracy),
        color=[style.OVER_CONFIDENT if o else style.UNDER_CONFIDENT for o in over],
        alpha=0.85,
        linewidth=0,
        label="_gaps",
    )
    axes.vlines(centre, low, high, color=style.INK, linewidth=stroke, label="_intervals")
    axes.plot([0, 1], [0, 1], "--", color=style.INK, linewidth=1, label="_diagonal")
    style.unit_axis(axes, "x")
    style.unit_axis(axes, "y")


def _draw_histogram(axes: Axes, cell: _Cell, top: float, columns: int) -> None:
    centre = cell.left + cell.width / 2
    axes.bar(
        centre,
        cell.share,
        cell.width,
        color=style.PALE,
        edgecolor="white",
        linewidth=min(1, 25 * cell.width),
        label="_shares",
    )
    # Not clipped, or a line at a mean of exactly 1 would be half as wide.
    accuracy = axes.axvline(
        cell.mean_accuracy, color=style.INK, linestyle="--", linewidth=1.5, clip_on=False
    )
    confidence = axes.axvline(
        cell.mean_confidence, color=style.MUTED, linestyle=(0, (1.5, 1)), linewidth=2, clip_on=False
    )
    style.unit_axis(axes, "x")
    # Room for the counts above the bars, more if they are vertical.
    axes.set_ylim(0, (1.25 if columns == 1 else 1.6) * top)
    axes.set_yticks([tick for tick in MaxNLocator(3).tick_values(0, top) if tick <= top])
    axes.legend(
        [accuracy, confidence],
        [f"accuracy {cell.mean_accuracy:.3f}", f"confidence {cell.mean_confidence:.3f}"],
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=2 if columns == 1 else 1,
        borderaxespad=0.2,
    )
    if round(1 / cell.width) <= _MOST_LABELLED_BINS:
        _write_counts(axes, centre, cell.share, cell.count, upright=columns == 1)


def _write_counts(axes: Axes, x: _Floats, share: _Floats, count: _Floats, *, upright: bool) -> None:
    for position, height, number in zip(x, share, count, strict=True):
        axes.annotate(
            _short(int(number)),
            (position, height),
            xytext=(0, 1.5),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=7,
            rotation=0 if upright else 90,
            path_effects=[withStroke(linewidth=2, foreground="white")],
            zorder=5,
        )


def _short(count: int) -> str:
    """At most four characters: 9999, 12k, 3.4M."""
    if count < 10_000:
        return str(count)
    if count < 1_000_000:
        return f"{count / 1e3:.0f}k"
    return f"{count / 1e6:.1f}M"


def _legend() -> dict[str, Artist]:
    return {
        "accuracy of the bin": Patch(color=style.PALE),
        "over-confident": Patch(color=style.OVER_CONFIDENT, alpha=0.85),
        "under-confident": Patch(color=style.UNDER_CONFIDENT, alpha=0.85),
        "95 % interval": Line2D([], [], color=style.INK, marker="|", markersize=12, linestyle=""),
        "95 % if calibrated": Patch(color=style.MUTED, alpha=_BAND_ALPHA, linewidth=0),
        "perfect calibration": Line2D([], [], color=style.INK, linewidth=1, linestyle="--"),
    }
