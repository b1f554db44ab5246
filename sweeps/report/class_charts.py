"""Reliability of one class's probability, on a scale that fits a rare class."""

from __future__ import annotations

from typing import Any

from calibration.metrics.class_view import ClassBins, ClassSummary
from calibration.plots.bands import noise_band, wilson_interval
from sweeps.report.chart import Chart, words


def class_chart(title: str, name: str, bins: ClassBins, summary: ClassSummary) -> Chart:
    """The share of the class by its probability, with intervals; axes end where the bins do."""
    low, high = wilson_interval(bins.share * bins.rows, bins.rows, bins.effect)
    band_low, band_high = noise_band(bins.mean, bins.rows, bins.effect)
    over = bins.mean > bins.share
    end = min(1.0, 1.15 * float(max(bins.mean.max(), bins.share.max(), 1e-4)))
    hover = [
        f"probability {p:.4f}, share {s:.4f}<br>95 % interval {lo:.4f} to {hi:.4f}<br>"
        f"{int(n)} test points, {round(s * n)} of the class"
        for p, s, lo, hi, n in zip(bins.mean, bins.share, low, high, bins.rows, strict=True)
    ]
    band: dict[str, Any] = {
        "type": "bar",
        "x": bins.mean,
        "base": band_low,
        "y": band_high - band_low,
        "width": 0.03 * end,
        "marker": {"color": "--muted", "opacity": 0.28, "line": {"width": 0}},
        "hoverinfo": "skip",
    }
    points: dict[str, Any] = {
        "type": "scatter",
        "mode": "markers",
        "x": bins.mean,
        "y": bins.share,
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": high - bins.share,
            "arrayminus": bins.share - low,
            "color": "--ink",
            "thickness": 1,
            "width": 0,
        },
        "marker": {"color": ["--over" if o else "--under" for o in over], "size": 7},
        "hovertext": hover,
        "hoverinfo": "text",
    }
    layout = {
        "barmode": "overlay",
        "margin": {"l": 44, "r": 8, "t": 8, "b": 36},
        "xaxis": {
            "range": [0, end],
            "nticks": 4,
            "title": {"text": words(f"probability of {name}")},
        },
        "yaxis": {"range": [0, end], "nticks": 4},
        "shapes": [
            {"type": "line", "x0": 0, "y0": 0, "x1": 1, "y1": 1}
            | {"line": {"color": "--muted", "width": 1, "dash": "dash"}}
        ],
    }
    about = (
        f"Reliability of the probability of {name}: {summary.rows} of {int(bins.rows.sum())} test "
        f"points belong to it ({100 * summary.share:.3g} %), and the mean probability is "
        f"{summary.mean:.4f}"
    )
    return Chart(title, about, [band, points], layout, height=250, small=True)
