"""Learned sample weights over time and over the plane (Sanguin et al. 2024, Fig. 3)."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray

from calibration.plots import style

_LINES = 60
# Light samples must stand out from white paper, and heavy ones from the edges of wrong ones.
_WEIGHTS = LinearSegmentedColormap.from_list("weight", ["#111111", "#56B4E9", "#F0E442"])


@style.styled
def sample_weights(
    epochs: ArrayLike,
    weights: ArrayLike,
    wrong: ArrayLike,
    points: ArrayLike | None = None,
    *,
    title: str | None = None,
) -> Figure:
    """Sample weights over the epochs; beside them, the last weights at the samples' positions.

    ``weights`` is (epochs, samples); ``wrong`` marks the samples that the trained network
    misclassifies; ``points`` (samples, 2) may be omitted for data that is not two-dimensional,
    and a histogram of the last weights then replaces the map. Raises ``ValueError`` if shapes
    do not match.
    """
    time = np.asarray(epochs, dtype=np.float64)
    history = np.asarray(weights, dtype=np.float64)
    missed = np.asarray(wrong, dtype=bool)
    if history.shape != (len(time), len(missed)) or 0 in history.shape:
        raise ValueError(
            f"weights must have shape (epochs, samples) = ({len(time)}, {len(missed)}), "
            f"found {history.shape}"
        )
    figure = style.new_figure(9.2, 3.9, title)
    left, right = figure.subplots(1, 2)
    _draw_history(left, time, history, missed)
    if points is None:
        _draw_histogram(right, history[-1], missed)
    else:
        _draw_map(figure, right, np.asarray(points, dtype=np.float64), history[-1], missed)
    handles = {
        "samples classified rightly at the end": Line2D([], [], color=style.MUTED),
        "wrongly (thick: their mean)": Line2D([], [], color=style.OVER_CONFIDENT),
    }
    style.legend_below(figure, handles)
    return figure


def _draw_history(
    axes: Axes,
    time: NDArray[np.float64],
    history: NDArray[np.float64],
    missed: NDArray[np.bool_],
) -> None:
    for wanted, colour in ((False, style.MUTED), (True, style.OVER_CONFIDENT)):
        group = np.flatnonzero(missed == wanted)
        if len(group) == 0:
            continue
        # More lines could not be distinguished; evenly chosen samples show the same bundles.
        shown = group[np.unique(np.linspace(0, len(group) - 1, _LINES).astype(int))]
        lines = [np.column_stack([time, history[:, sample]]) for sample in shown]
        axes.add_collection(LineCollection(lines, colors=colour, linewidths=0.4, alpha=0.35))
        axes.plot(time, history[:, group].mean(1), color=colour, linewidth=2.2, zorder=3)
    axes.set_xlim(0, time[-1])
    low, high = min(0.0, history.min()), max(1.0, history.max())
    axes.set_ylim(low - 0.02, high + 0.02)
    axes.set_xlabel("epoch")
    axes.set_ylabel("weight of a training sample")


def _draw_map(
    figure: Figure,
    axes: Axes,
    points: NDArray[np.float64],
    last: NDArray[np.float64],
    missed: NDArray[np.bool_],
) -> None:
    if points.shape != (len(last), 2):
        raise ValueError(f"points must have shape ({len(last)}, 2), found {points.shape}")
    drawn = axes.scatter(
        points[:, 0],
        points[:, 1],
        c=last,
        cmap=_WEIGHTS,
        vmin=min(0.0, last.min()),
        vmax=max(1.0, last.max()),
        s=14,
        edgecolors=np.where(missed, style.OVER_CONFIDENT, "none").tolist(),
        linewidths=0.9,
    )
    figure.colorbar(drawn, ax=axes, label="weight at the end")
    axes.set_xlabel("first input")
    axes.set_ylabel("second input")


def _draw_histogram(axes: Axes, last: NDArray[np.float64], missed: NDArray[np.bool_]) -> None:
    axes.hist(
        [last[~missed], last[missed]],
        bins=20,
        stacked=True,
        color=[style.MUTED, style.OVER_CONFIDENT],
    )
    axes.set_xlabel("weight at the end")
    axes.set_ylabel("training samples")
