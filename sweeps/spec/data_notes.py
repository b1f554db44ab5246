"""What a reader must know of how a dataset's rows are divided."""

from __future__ import annotations

from calibration.calibrators import CALIBRATORS
from calibration.data import Dataset
from calibration.metrics import METRICS
from calibration.metrics.bootstrap import FEW_GROUPS


def data_notes(dataset: Dataset) -> list[str]:
    """Sentences on groups, given parts and weights; none for equal rows divided at random."""
    notes = []
    groups = dataset.test_groups
    if groups is not None:
        notes.append(
            f"No group is in two parts; intervals and tests speak of new groups ({groups} in the "
            "test part)."
        )
        if groups < FEW_GROUPS:
            notes.append(
                f"Warning: fewer than {FEW_GROUPS} groups are in the test part. Intervals use "
                f"Student's t with {groups - 1} degrees of freedom, and are wide and uncertain."
            )
    if dataset.weighted:
        metrics = [metric.title for _, metric in METRICS.items() if not metric.weighted]
        maps = [name for name in CALIBRATORS if not CALIBRATORS[name].weighted]
        notes.append(
            "Rows count by their weights, in training and in what is measured and fitted; only "
            "their ratios matter. Unweighted, as they cannot follow them: the metrics "
            f"{', '.join(metrics)}; the fits of the calibrators {', '.join(maps)}; diagrams and "
            "tables of single classes."
        )
    if dataset.fixed_split:
        notes.append(
            "The parts are given by the data and the same for every seed: the spread over seeds is "
            "that of training alone, and says nothing of other training data. A learner without "
            "randomness is trained once for all of them: its uncertainty is that of the test rows."
        )
    return notes
