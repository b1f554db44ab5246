"""Comparisons of methods as lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from calibration import metrics
from calibration.metrics.checks import Data
from calibration.plots import style


@style.styled
def bin_robustness(named: Mapping[str, tuple[Data, Data]], *, title: str | None = None) -> Figure:
    """ECE and MCE against the number of bins, 10 to 1000 (Meta-Regularization, Fig. 5).

    Takes (confidence, correct) by name. Raises ``ValueError`` if there are none or any is
    malformed.
    """
    style.check_named(named, "(confidence, correct)")
    figure = style.new_figure(7.6, 3.3, title)
    left, right = figure.subplots(1, 2, sharex=True)
    handles: dict[str, Artist] = {}
    for name, look in style.line_styles(named).items():
        curve = metrics.bin_robustness(*named[name])
        (handles[name],) = left.plot(curve.bins, curve.ece.cpu(), markersize=4, **look)
        right.plot(curve.bins, curve.mce.cpu(), markersize=4, **look)
    for axes, label in ((left, "ECE"), (right, "MCE")):
        axes.set_xscale("log")
        axes.set_xticks(curve.bins, [str(number) for number in curve.bins])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("number of bins")
        axes.set_ylabel(label)
        axes.grid(axis="y")
    left.set_ylim(bottom=0)
    right.set_ylim(0, 1)
    style.legend_below(figure, handles)
    return figure


@style.styled
def risk_coverage(named: Mapping[str, tuple[Data, Data]], *, title: str | None = None) -> Figure:
    """Error among the most confident samples against the share of samples kept.

    Takes (confidence, correct) by name; the legend gives the area under each curve (AURC).
    Raises ``ValueError`` if there are none or any is malformed.
    """
    style.check_named(named, "(confidence, correct)")
    figure = style.new_figure(6, 3.8, title)
    axes = figure.subplots()
    handles: dict[str, Artist] = {}
    for name, look in style.line_styles(named).items():
        curve = metrics.risk_coverage_curve(*named[name])
        area = float(metrics.aurc(*named[name]))
        (line,) = axes.plot(curve.coverage.cpu(), curve.risk.cpu(), **look)
        # Markers at every sample would merge.
        line.set_marker("")
        handles[f"{name} (AURC {area:.4f})"] = line
    style.unit_axis(axes, "x")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("coverage: share of samples kept, most confident first")
    axes.set_ylabel("risk: error among them")
    axes.grid(axis="y")
    style.legend_below(figure, handles)
    return figure


@style.styled
def curves(
    named: Mapping[str, Sequence[tuple[float, float]]], ylabel: str, *, title: str | None = None
) -> Figure:
    """Values over epochs, one line per name, from lists of (epoch, value).

    Raises ``ValueError`` if there is no name or a name has no points.
    """
    style.check_named(named, "a list of (epoch, value)")
    figure = style.new_figure(6, 3.6, title)
    axes = figure.subplots()
    handles: dict[str, Artist] = {}
    for name, look in style.line_styles(named).items():
        points = np.asarray(named[name], dtype=np.float64)
        if points.ndim != 2 or points.shape[1] != 2:
            raise ValueError(
                f"{name!r} must be a list of (epoch, value) with at least one, found shape "
                f"{points.shape}"
            )
        (handles[name],) = axes.plot(
            points[:, 0], points[:, 1], markersize=4, markevery=max(1, len(points) // 12), **look
        )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    epochs = [epoch for points in named.values() for epoch, _ in points]
    if min(epochs) == max(epochs):
        axes.set_xlim(epochs[0] - 1, epochs[0] + 1)
    axes.set_xlabel("epoch")
    axes.set_ylabel(ylabel)
    axes.grid(axis="y")
    style.legend_below(figure, handles)
    return figure
