"""What a reader must know of how a dataset's rows are divided."""

from __future__ import annotations

from calibration.data import Dataset
from calibration.metrics.bootstrap import FEW_GROUPS


def data_notes(dataset: Dataset) -> list[str]:
    """Sentences on groups and given parts; none for rows that are divided at random."""
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
    if dataset.fixed_split:
        notes.append(
            "The parts are given by the data and the same for every seed: the spread over seeds is "
            "that of training alone, and says nothing of other training data."
        )
    return notes
