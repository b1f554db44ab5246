"""Line charts that compare rows: over epochs, numbers of bins, and coverage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from calibration import metrics
from sweeps.report.chart import Chart, Key, Look, words

_MOST_LINES = 8
_MOST_POINTS = 120
_Points = Sequence[tuple[float, float]]


def curves_chart(
    title: str, about: str, named: Mapping[str, _Points], styles: Mapping[str, Look]
) -> Chart:
    """Values over epochs, one line for each name's list of (epoch, value)."""
    traces = []
    for place, (name, points) in enumerate(named.items()):
        thin = _thinned(np.asarray(points, dtype=np.float64))
        traces.append(_line(name, thin[:, 0], thin[:, 1], styles[name], place))
    layout = {"xaxis": _axis("epoch"), "yaxis": _axis(title)}
    return Chart(title, about, traces, layout, keys=_keys(named, styles))


def bins_chart(shown: Mapping[str, tuple[Tensor, Tensor]], styles: Mapping[str, Look]) -> Chart:
    """ECE and MCE against the number of bins (Meta-Regularization, Fig. 5)."""
    traces, ticks = [], [10, 100, 1000]
    for place, (name, pair) in enumerate(shown.items()):
        found = metrics.bin_robustness(*pair)
        x = np.asarray(found.bins)
        traces.append(_line(name, x, found.ece.cpu().numpy(), styles[name], place))
        traces.append(_line(name, x, found.mce.cpu().numpy(), styles[name], place, "2"))
    layout = {
        "xaxis": _axis("number of bins", type="log", tickvals=ticks, domain=[0, 0.44]),
        "xaxis2": _axis("number of bins", type="log", tickvals=ticks, domain=[0.56, 1]),
        "yaxis": _axis("ECE", rangemode="tozero"),
        "yaxis2": _axis("MCE", range=[0, 1.02], anchor="x2"),
    }
    about = (
        "ECE and MCE by the number of equal-width bins. A ranking that changes with the number "
        "of bins is not a finding; with few points in a bin both grow by chance alone."
    )
    return Chart(
        "Robustness to the number of bins", about, traces, layout, keys=_keys(shown, styles)
    )


def coverage_chart(shown: Mapping[str, tuple[Tensor, Tensor]], styles: Mapping[str, Look]) -> Chart:
    """The error among the most confident test points by the share of points kept."""
    traces = []
    for place, (name, pair) in enumerate(shown.items()):
        curve = metrics.risk_coverage_curve(*pair)
        points = np.column_stack([curve.coverage.cpu().numpy(), curve.risk.cpu().numpy()])
        thin = _thinned(points)
        traces.append(_line(name, thin[:, 0], thin[:, 1], styles[name], place))
    layout = {
        "xaxis": _axis("share of points kept, most confident first", range=[0, 1]),
        "yaxis": _axis("error among them", rangemode="tozero"),
    }
    about = (
        "The benefit of abstaining: the error among the test points that are kept when the least "
        "confident ones are refused. Lower is better."
    )
    return Chart("Risk and coverage", about, traces, layout, keys=_keys(shown, styles))


def _axis(title: str, **options: Any) -> dict[str, Any]:
    return {"title": {"text": words(title)}} | options


def _line(name: str, x: Any, y: Any, look: Look, place: int, axes: str = "") -> dict[str, Any]:
    """Lines after the first few are hidden until selected in the legend."""
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines" if len(x) > 12 else "lines+markers",
        "name": words(name),
        "group": name,
        "x": x,
        "y": y,
        "line": {"color": look.colour, "dash": look.dash, "width": 1.8},
        "marker": {"color": look.colour, "symbol": look.symbol, "size": 5},
    }
    if axes:
        trace |= {"xaxis": f"x{axes}", "yaxis": f"y{axes}"}
    return trace if place < _MOST_LINES else trace | {"visible": False}


def _keys(named: Mapping[str, object], styles: Mapping[str, Look]) -> list[Key]:
    return [
        Key(name, name, styles[name], shown=place < _MOST_LINES) for place, name in enumerate(named)
    ]


def _thinned(points: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """As many points as a screen can resolve, including the first and the last."""
    if len(points) <= _MOST_POINTS:
        return points
    kept = np.unique(np.linspace(0, len(points) - 1, _MOST_POINTS).round().astype(int))
    return np.asarray(points[kept])
