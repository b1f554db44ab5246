"""Figures: arrays in, a ``matplotlib.figure.Figure`` out, without global state."""

from __future__ import annotations

from calibration.plots.comparison import bin_robustness, curves, risk_coverage
from calibration.plots.regions import confidence_regions, confidence_regions_grid
from calibration.plots.reliability import (
    confidence_histogram,
    reliability_by_bins,
    reliability_diagram,
    reliability_grid,
)
from calibration.plots.style import png
from calibration.plots.weights import sample_weights

__all__ = [
    "bin_robustness",
    "confidence_histogram",
    "confidence_regions",
    "confidence_regions_grid",
    "curves",
    "png",
    "reliability_by_bins",
    "reliability_diagram",
    "reliability_grid",
    "risk_coverage",
    "sample_weights",
]
