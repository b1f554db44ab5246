"""Reliability diagrams over confidence histograms, small and all on one scale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from calibration import metrics
from calibration.plots.bands import group_effects, noise_band, wilson_interval
from sweeps.report.chart import Chart


def reliability_charts(
    shown: Mapping[str, tuple[Tensor, Tensor]],
    bins: int,
    groups: Mapping[str, Tensor | None] | None = None,
) -> dict[str, Chart]:
    """A diagram for each name's (confidence, correct); histograms share the tallest one's scale.

    ``groups`` are those of a name's rows, where they have any. Raises ``ValueError`` for
    malformed input, as the metrics do.
    """
    curves = {name: metrics.reliability_curve(*pair, bins=bins) for name, pair in shown.items()}
    shares = [float(curve.count.max() / curve.count.sum()) for curve in curves.values()]
    top = max(shares, default=1.0)
    known = groups or {}
    return {
        name: _diagram(name, *pair, known.get(name), bins=bins, top=top)
        for name, pair in shown.items()
    }


def _diagram(
    name: str, confidence: Tensor, correct: Tensor, groups: Tensor | None, *, bins: int, top: float
) -> Chart:
    curve = metrics.reliability_curve(confidence, correct, bins=bins)
    full = curve.count > 0
    count = curve.count[full].double().cpu().numpy()
    mean = curve.confidence[full].double().cpu().numpy()
    accuracy = curve.accuracy[full].double().cpu().numpy()
    centre = curve.edges[:-1][full].double().cpu().numpy() + 0.5 / bins
    effect = group_effects(confidence, correct, groups, bins)[full.cpu().numpy()]
    low, high = wilson_interval(accuracy * count, count, effect)
    band_low, band_high = noise_band(mean, count, effect)
    over = mean > accuracy
    hover = [
        f"confidence {c:.3f}, accuracy {a:.3f}<br>95 % interval {lo:.3f} to {hi:.3f}<br>"
        f"{int(n)} test points"
        for c, a, lo, hi, n in zip(mean, accuracy, low, high, count, strict=True)
    ]
    silent = {"type": "bar", "x": centre, "hoverinfo": "skip"}
    traces: list[dict[str, Any]] = [
        silent | {"y": accuracy, "width": 1 / bins, "marker": _fill("--pale")},
        silent
        | {"y": band_high - band_low, "base": band_low, "width": 1 / bins}
        | {"marker": _fill("--muted", 0.28)},
        silent
        | {"y": np.abs(mean - accuracy), "base": np.minimum(mean, accuracy), "width": 0.5 / bins}
        | {"marker": _fill(["--over" if o else "--under" for o in over])},
        {
            "type": "scatter",
            "mode": "markers",
            "name": "accuracy",
            "x": centre,
            "y": accuracy,
            "error_y": {
                "type": "data",
                "symmetric": False,
                "array": high - accuracy,
                "arrayminus": accuracy - low,
                "color": "--ink",
                "thickness": 1,
                "width": 0,
            },
            "marker": {"color": "--ink", "size": 3},
            "hovertext": hover,
            "hoverinfo": "text",
        },
        {
            "type": "bar",
            "x": centre,
            "y": count / count.sum(),
            "width": 1 / bins,
            "yaxis": "y2",
            "marker": _fill("--pale"),
            "hovertext": [f"{int(n)} test points" for n in count],
            "hoverinfo": "text",
        },
    ]
    hits = float(correct.double().mean())
    sure = float(confidence.double().mean())
    layout = {
        "barmode": "overlay",
        "margin": {"l": 36, "r": 8, "t": 8, "b": 36},
        "xaxis": {
            "range": [0, 1],
            "tickvals": [0, 0.5, 1],
            "title": {"text": "confidence"},
            "anchor": "y2",
        },
        "yaxis": {"range": [0, 1], "domain": [0.3, 1], "tickvals": [0, 0.5, 1]},
        "yaxis2": {"range": [0, 1.05 * top], "domain": [0, 0.22], "nticks": 3, "tickformat": ".0%"},
        "shapes": [
            _line([0, 1], [0, 1], "y", "dash"),
            _line([hits, hits], [0, 1.05 * top], "y2", "dash"),
            _line([sure, sure], [0, 1.05 * top], "y2", "dot"),
        ],
    }
    about = f"Reliability diagram of {name}: accuracy {hits:.3f}, mean confidence {sure:.3f}"
    return Chart(name, about, traces, layout, height=270, small=True)


def _fill(colour: str | list[str], opacity: float = 1.0) -> dict[str, Any]:
    return {"color": colour, "line": {"width": 0}} | ({"opacity": opacity} if opacity < 1 else {})


def _line(x: list[float], y: list[float], axis: str, dash: str) -> dict[str, Any]:
    return {
        "type": "line",
        "xref": "x",
        "yref": axis,
        "x0": x[0],
        "x1": x[1],
        "y0": y[0],
        "y1": y[1],
        "line": {"color": "--muted", "width": 1, "dash": dash},
    }
