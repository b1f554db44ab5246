"""The names of cells and the format of shares, in sentences, tables and charts alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sweeps.analysis.results import label

MINUS = "−"


def cell_name(cell: Sequence[str]) -> str:
    """``bo4sc · blobs-1.7 · standard + temperature``; repeated names appear once."""
    sweep, dataset, method, calibrator = cell
    row = label(method, calibrator or "identity")
    return " · ".join([*dict.fromkeys((sweep, dataset)), row])


def percent(share: float) -> str:
    """``+12 %``, or a dash where there is no number."""
    return f"{100 * float(share):+.0f} %".replace("-", MINUS) if np.isfinite(share) else "–"
