"""Notes for readers of results on rows that belong to groups or have weights."""

from __future__ import annotations

from collections.abc import Iterable

from calibration.calibrators import CALIBRATORS
from calibration.metrics import METRICS
from calibration.metrics.bootstrap import FEW_GROUPS


def notes_on_groups(groups: int, where: str) -> list[str]:
    """Sentences on what intervals and tests refer to, with this many groups ``where``."""
    notes = [f"Intervals and tests are about new groups ({groups} in {where})."]
    if groups < FEW_GROUPS:
        notes.append(
            f"Warning: fewer than {FEW_GROUPS} groups are in {where}. Intervals use Student's t "
            f"with {groups - 1} degrees of freedom, and are wide and uncertain."
        )
    return notes


def notes_on_weights(where: str, calibrators: Iterable[str]) -> list[str]:
    """A sentence on ``where`` weights count, and one on what ignores them."""
    unweighted = [metric.title for _, metric in METRICS.items() if not metric.weighted]
    maps = [name for name in calibrators if not CALIBRATORS[name].weighted]
    fits = f"the fits of the calibrators {', '.join(maps)}; " if maps else ""
    return [
        f"Rows count by their weights, {where}; only their ratios matter. Unweighted, as they "
        f"cannot follow them: the metrics {', '.join(unweighted)}; {fits}diagrams and tables of "
        "single classes."
    ]
