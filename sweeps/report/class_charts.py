"""Reliability of one class's probability, on a scale that fits a rare class."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibration.plots.reliability import noise_band, wilson_interval
from sweeps.report.chart import Chart, words

MOST_BINS = 10
LEAST_EXPECTED = 5.0
_Floats = NDArray[np.float64]


class ClassBins(NamedTuple):
    """Bins of a class's probability: rows, mean probability, share of the class, each (M)."""

    rows: _Floats
    mean: _Floats
    share: _Floats


def class_bins(probability: Tensor, positive: Tensor) -> ClassBins:
    """Bins with about equally many expected rows of the class (Σp) in each.

    Bins of equal width or of equal mass put nearly all positives of a rare class into one. There
    are at most ten, and fewer if a bin would have less than five expected rows. The bin edges do
    not depend on the labels; rows of equal probability stay together.
    """
    level, group = probability.double().unique(return_inverse=True)
    ones = torch.ones_like(probability, dtype=torch.float64)
    size = torch.zeros_like(level).scatter_add_(0, group, ones)
    hits = torch.zeros_like(level).scatter_add_(0, group, positive.double())
    mass = (size * level).cumsum(0)
    total = float(mass[-1])
    bins = int(min(MOST_BINS, max(1.0, total // LEAST_EXPECTED)))
    middle = mass - size * level / 2
    place = (middle / max(total, 1e-300) * bins).long().clamp(0, bins - 1)
    sums = [
        torch.zeros(bins, dtype=torch.float64).scatter_add_(0, place, values)
        for values in (size, size * level, hits)
    ]
    full = sums[0] > 0
    count, expected, found = (each[full].numpy() for each in sums)
    return ClassBins(count, expected / count, found / count)


def class_chart(title: str, name: str, probability: Tensor, positive: Tensor) -> Chart:
    """The share of the class by its probability, with intervals; axes end where the bins do."""
    bins = class_bins(probability, positive)
    low, high = wilson_interval(bins.share * bins.rows, bins.rows)
    band_low, band_high = noise_band(bins.mean, bins.rows)
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
    rows, share = int(positive.sum()), float(positive.double().mean())
    about = (
        f"Reliability of the probability of {name}: {rows} of {len(positive)} test points belong "
        f"to it ({100 * share:.3g} %), and the mean probability is "
        f"{float(probability.double().mean()):.4f}"
    )
    return Chart(title, about, [band, points], layout, height=250, small=True)
