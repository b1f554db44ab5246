"""Confidence over a plane of inputs (Sanguin et al. 2024, Fig. 1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray

from calibration.plots import style

_Floats = NDArray[np.float64]
Predict = Callable[[_Floats], ArrayLike]

_COLUMNS = 3
# Greys leave all colours to the samples; without the darkest, so that dark samples stay visible.
_GREYS = LinearSegmentedColormap.from_list("confidence", ["#5A5A5A", "#FFFFFF"])


@style.styled
def confidence_regions(
    predict: Predict,
    points: ArrayLike,
    labels: ArrayLike,
    *,
    title: str | None = None,
    resolution: int = 200,
) -> Figure:
    """The confidence of a classifier on two inputs as background, samples on top.

    ``predict`` maps points (n, 2) to their confidences (n,). The colours span 1/K, the least
    possible value of a largest probability, to 1, where K is the number of classes among
    ``labels``; the marker shows a sample's class.

    Raises ``ValueError`` if points are not (n, 2), labels not (n,) or confidences not (n,).
    """
    return _draw({"": predict}, points, labels, title, resolution)


@style.styled
def confidence_regions_grid(
    named: Mapping[str, Predict],
    points: ArrayLike,
    labels: ArrayLike,
    *,
    title: str | None = None,
    resolution: int = 200,
) -> Figure:
    """``confidence_regions`` of several classifiers with one scale and one colour bar.

    Raises ``ValueError`` if ``named`` is empty, and as ``confidence_regions`` does.
    """
    style.check_named(named, "a function from points (n, 2) to confidences (n,)")
    return _draw(named, points, labels, title, resolution)


def _draw(
    named: Mapping[str, Predict],
    points: ArrayLike,
    labels: ArrayLike,
    title: str | None,
    resolution: int,
) -> Figure:
    samples, classes = _checked(points, labels)
    rows = math.ceil(len(named) / _COLUMNS)
    columns = math.ceil(len(named) / rows)
    side = 4.6 if columns == 1 else 3.2
    figure = style.new_figure(side * columns + 1.2, side * rows + 0.4, title)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    surfaces = {
        name: _surface(predict, samples, resolution, name) for name, predict in named.items()
    }
    lowest = 1 / max(2, len(np.unique(classes)))
    scale = Normalize(lowest, 1)
    for axes in grid.flat[len(named) :]:
        axes.set_visible(False)
    for axes, (name, surface) in zip(grid.flat, surfaces.items(), strict=False):
        axes.imshow(
            surface,
            origin="lower",
            extent=_extent(samples),
            aspect="auto",
            cmap=_GREYS,
            norm=scale,
            interpolation="bilinear",
        )
        handles = _scatter(axes, samples, classes)
        axes.set_title(name)
        axes.tick_params(labelbottom=True)
    for axes in grid[:, 0]:
        axes.set_ylabel("second input")
    # The lowest of each column, even above an empty cell.
    for axes in grid.flat[max(0, len(named) - columns) : len(named)]:
        axes.set_xlabel("first input")
    below = any(surface.min() < lowest - 1e-6 for surface in surfaces.values())
    figure.colorbar(
        ScalarMappable(scale, _GREYS),
        ax=grid,
        label="confidence",
        extend="min" if below else "neither",
    )
    style.legend_below(figure, handles)
    return figure


def _checked(points: ArrayLike, labels: ArrayLike) -> tuple[_Floats, NDArray[np.int64]]:
    samples = np.asarray(points, dtype=np.float64)
    classes = np.asarray(labels)
    if samples.ndim != 2 or samples.shape[1] != 2 or len(samples) == 0:
        raise ValueError(f"points must have shape (n, 2), found {samples.shape}")
    if classes.shape != (len(samples),):
        raise ValueError(f"labels must have shape ({len(samples)},), found {classes.shape}")
    return samples, classes.astype(np.int64)


def _extent(samples: _Floats) -> tuple[float, float, float, float]:
    low, high = samples.min(0), samples.max(0)
    margin = np.where(high > low, 0.08 * (high - low), 1.0)
    (left, bottom), (right, top) = low - margin, high + margin
    return float(left), float(right), float(bottom), float(top)


def _surface(predict: Predict, samples: _Floats, resolution: int, name: str) -> _Floats:
    left, right, bottom, top = _extent(samples)
    # Pixel centres, so that a colour is at its point.
    steps = (np.arange(resolution) + 0.5) / resolution
    x, y = np.meshgrid(left + (right - left) * steps, bottom + (top - bottom) * steps)
    confidence = np.asarray(predict(np.column_stack([x.ravel(), y.ravel()])), dtype=np.float64)
    if confidence.shape != (resolution**2,):
        raise ValueError(
            f"predict {name!r} must return one confidence for each of {resolution**2} points, "
            f"found shape {confidence.shape}"
        )
    return confidence.reshape(resolution, resolution)


def _scatter(axes: Axes, samples: _Floats, classes: NDArray[np.int64]) -> dict[str, Artist]:
    """Draw the samples and return a legend entry for each class."""
    handles: dict[str, Artist] = {}
    size = float(np.clip(80 / len(samples) ** 0.5, 3, 6))
    looks = style.line_styles(str(label) for label in np.unique(classes))
    for label, look in looks.items():
        chosen = samples[classes == int(label)]
        marker: dict[str, Any] = look | {"linestyle": "", "markeredgecolor": "white"}
        axes.plot(chosen[:, 0], chosen[:, 1], markersize=size, markeredgewidth=0.3, **marker)
        handles[f"class {label}"] = Line2D([], [], markersize=7, markeredgewidth=0.3, **marker)
    return handles
